/// The format peft: the adapters of a model alone, as Hugging Face's peft reads them next to the model in the format hf
/// (FORMAT.md).
#include "interchange/peft.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>
#include <map>
#include <set>

#include "core/error.hpp"
#include "interchange/formats.hpp"
#include "interchange/safetensors.hpp"

namespace argosy::interchange {
namespace {

/// The ends of the modules' names, or whole names where an end is also that of a module without adapters.
boost::json::array targets_of(const AdapterList& list) {
  std::set<std::string> targets;
  for (const Adapter& adapter : list.adapters) {
    const std::string end = adapter.module.substr(adapter.module.rfind('.') + 1);
    const bool clear =
        std::ranges::none_of(list.others, [&](const std::string& other) { return other.ends_with("." + end); });
    targets.insert(clear ? end : adapter.module);
  }
  boost::json::array names;
  for (const std::string& target : targets) names.emplace_back(target);
  return names;
}

void require_adapters(const model::StoredModel& model, const ExportOptions& options) {
  if (!model.adapters)
    throw_claim(Fault::usage, fmt::format("--format peft: {} has no adapters", model.where), model.where,
                "a checkpoint of a run with lora", "one without", "use another format");
  if (model.adapters->config.train_embeddings.value_or(false))
    throw_claim(Fault::usage, "--format peft: embeddings were trained as well, and the format holds adapters alone",
                "lora.train_embeddings", "false", "true", "export the merged model, in another format");
  if (options.quantization != Quantization::float32)
    throw_claim(Fault::usage, "--format peft stores adapters as float32", "--quantization", "float32", "another type",
                "leave --quantization out");
  if (options.verify_with)
    throw_claim(Fault::usage, "--format peft holds no whole model that could be verified", "--verify", "another format",
                "peft", "leave --verify out");
}

/// Like the format hf, whose folder holds the matrices.
std::optional<Facts> peft_limit(const spec::Architecture& architecture) {
  return format_named("hf").limit(architecture);
}

ExportReport write_peft(comm::Context& context, const model::StoredModel& model, const Path& folder,
                        const ExportOptions& options) {
  const double begin_s = context.clock.monotonic_s();
  ExportReport report{.folder = folder};
  AdapterList list;
  comm::agree(context.world, [&] {
    require_adapters(model, options);
    if (auto facts = peft_limit(model.spec.architecture)) throw Error{Fault::usage, std::move(*facts)};
    list = adapters_of(model.adapters->spec);
    if (list.adapters.empty())
      throw_claim(Fault::usage, fmt::format("--format peft: no part of the task {} has adapters", model.task),
                  model.where, "a task whose components have some (lora.targets)", model.task,
                  "use another format or task");
  });
  std::vector<Tensor> tensors;
  const auto add = [&](std::string name, const spec::Parameter& parameter, std::int64_t row, std::int64_t rows) {
    const std::int64_t columns = parameter.shape.back(), begin = row * columns;
    tensors.push_back(
        {name, DType::f32, {rows, columns}, [&model, &parameter, begin, name](std::int64_t first, MutableBytes to) {
           fill_floats(model, parameter, begin + first, DType::f32, name, to);
         }});
    report.parameters += rows * columns;
  };
  for (const Adapter& adapter : list.adapters) {
    add(adapter.down_name(), *adapter.down, adapter.part.down, adapter.part.rank);
    add(adapter.up_name(), *adapter.up, adapter.part.up, adapter.part.rows);
  }
  OutputFolder output{context, folder};
  const Written written = write_safetensors(context.world, context.files, output.path(), tensors,
                                            std::numeric_limits<std::uint64_t>::max(), adapter_stem);
  report.bytes = written.bytes;
  output.add_sums(written.sums);
  const spec::LoraConfig& lora = model.adapters->config;
  const double alpha = lora.alpha.value_or(lora.rslora ? 16 : static_cast<double>(*lora.rank));
  const bool pairs = model.spec.architecture.type == spec::ModelType::encoder_decoder;
  // Compact: pretty() writes 16.0 as 16, and alpha may be a fraction.
  output.write(adapter_config_file,
               boost::json::serialize(boost::json::object{{"peft_type", "LORA"},
                                                          {"task_type", pairs ? "SEQ_2_SEQ_LM" : "CAUSAL_LM"},
                                                          {"base_model_name_or_path", nullptr},
                                                          {"r", *lora.rank},
                                                          {"lora_alpha", alpha},
                                                          {"use_rslora", lora.rslora},
                                                          {"target_modules", targets_of(list)},
                                                          {"lora_dropout", lora.dropout},
                                                          {"bias", "none"},
                                                          {"fan_in_fan_out", false},
                                                          {"inference_mode", true}}) +
                   "\n");
  output.commit();
  report.seconds = context.clock.monotonic_s() - begin_s;
  return report;
}

}  // namespace

AdapterList adapters_of(const spec::ModelSpec& adapted) {
  constexpr std::string_view ending = ".weight";
  std::map<std::string, const spec::Parameter*> parameters;
  for (const spec::Unit& unit : adapted.units)
    for (const spec::Parameter& parameter : unit.parameters) parameters.emplace(parameter.name, &parameter);
  AdapterList list;
  const spec::ModelSpec plain(adapted.architecture);
  for (const Mapped& mapped : mapped_tensors(plain, family_of(adapted.architecture))) {
    if (!mapped.name.ends_with(ending)) continue;
    const std::string module = mapped.name.substr(0, mapped.name.size() - ending.size());
    const auto names = spec::adapter_names(mapped.parameter->name);
    const auto down = names ? parameters.find(names->down) : parameters.end();
    bool has_adapters = false;
    if (down != parameters.end()) {
      const spec::Parameter* const up = parameters.at(names->up);
      for (const spec::AdapterPart& part : spec::adapter_parts(*mapped.parameter, *down->second, *up)) {
        if (part.begin != mapped.begin) continue;
        list.adapters.push_back({module, down->second, up, part});
        has_adapters = true;
      }
    }
    if (!has_adapters) list.others.insert(module);
  }
  return list;
}

Format peft() {
  return {"peft", "the adapters of a run with lora, alone, for the model in the format hf", peft_limit, write_peft,
          /*is_unlisted=*/true};
}

}  // namespace argosy::interchange
