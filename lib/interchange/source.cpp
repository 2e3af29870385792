#include "interchange/source.hpp"

#include <fmt/format.h>

#include <functional>
#include <optional>

#include "checkpoint/load.hpp"
#include "core/error.hpp"
#include "interchange/ct2_import.hpp"
#include "interchange/hf_import.hpp"
#include "interchange/peft.hpp"

namespace argosy::interchange {

namespace {

using OpenCheckpoint = std::function<model::StoredModel(std::unique_ptr<const checkpoint::Reader>)>;

model::StoredModel open_by_content(comm::Context& context, const std::string& name, bool ema, const std::string& task,
                                   const OpenCheckpoint& open) {
  constexpr std::string_view mark = "hf:";
  const bool marked = name.starts_with(mark);
  const Path folder = marked ? name.substr(mark.size()) : name;
  std::string kind;
  comm::at_root(context.world, [&] {
    const bool foreign = is_hugging_face(context.files, folder);
    if (marked && !foreign)
      throw_error(Fault::data, folder.string(), "a Hugging Face folder", "no config.json, or a checkpoint",
                  "leave hf: out for checkpoints");
    kind = !foreign ? "checkpoint" : !marked && is_ctranslate2(context.files, folder) ? "ct2" : "hf";
  });
  kind = context.world.broadcast(kind);
  std::optional<model::StoredModel> model;
  if (kind != "checkpoint") {
    comm::agree(context.world, [&] {
      if (ema)
        throw_claim(Fault::usage, fmt::format("--ema: {} has no running means", folder.string()), "--ema",
                    "a checkpoint of a run with optimizer.ema", "a folder of another program", "leave --ema out");
      if (!task.empty())
        throw_claim(Fault::usage, fmt::format("--task {}: the model of {} has no tasks", task, folder.string()),
                    folder.string(), "a checkpoint of a model of several tasks", "a folder of another program",
                    "leave --task out");
      model.emplace(kind == "ct2" ? ctranslate2_model(context.files, folder)
                                  : hugging_face_model(context.files, folder));
    });
  } else {
    auto reader = std::make_unique<checkpoint::Reader>(checkpoint::open_on_all(context, folder));
    if (ema) reader->use_ema();
    comm::agree(context.world, [&] { model.emplace(open(std::move(reader))); });
  }
  return std::move(*model);
}

}  // namespace

model::StoredModel open_source(comm::Context& context, const std::string& name, bool ema, const std::string& task) {
  return open_by_content(context, name, ema, task, [&](std::unique_ptr<const checkpoint::Reader> reader) {
    return model::stored_model(std::move(reader), task);
  });
}

model::StoredModel open_whole_source(comm::Context& context, const std::string& name) {
  return open_by_content(context, name, false, {}, [](std::unique_ptr<const checkpoint::Reader> reader) {
    return model::whole_model(std::move(reader));
  });
}

std::unique_ptr<const model::WeightSource> open_adapters(comm::Context& context, const std::string& name,
                                                         const spec::ModelSpec& spec) {
  std::unique_ptr<const model::WeightSource> adapters;
  comm::agree(context.world, [&] {
    if (is_peft(context.files, name)) adapters = peft_adapters(context.files, name, spec);
  });
  return adapters;
}

}  // namespace argosy::interchange
