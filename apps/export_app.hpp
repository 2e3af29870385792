#pragma once

#include <functional>
#include <optional>

#include "core/memory.hpp"
#include "export_options.hpp"
#include "interchange/source.hpp"
#include "interchange/vocabulary.hpp"

/// The tool export, for two programs: export starts without LibTorch, export_verified has it and runs models.
namespace argosy::app {

namespace detail {

/// The model with another vocabulary, if that was asked for.
inline std::optional<interchange::ChangedVocabulary> changed_vocabulary(comm::Context& context,
                                                                        const model::StoredModel& source,
                                                                        const ExportCommand& command,
                                                                        const model::Forward& forward) {
  if (!command.trim.empty())
    return interchange::trim_vocabulary(context, source, command.trim, command.min_count, forward);
  if (!command.extend.empty())
    return interchange::extend_vocabulary(context, source, command.extend, command.texts, forward);
  return std::nullopt;
}

/// {"model": …} with the keys that are not the defaults.
inline std::string model_text(const spec::ModelConfig& config) {
  boost::json::object keys = config::to_json(config).as_object();
  const auto without_defaults = [](boost::json::object& of, const boost::json::object& defaults) {
    for (const auto& [key, value] : defaults)
      if (of.at(key) == value) of.erase(key);
  };
  spec::ModelConfig plain;
  plain.type = config.type;
  const boost::json::object defaults = config::to_json(plain).as_object();
  for (const char* const side : {"encoder", "decoder"})
    without_defaults(keys.at(side).as_object(), defaults.at(side).as_object());
  without_defaults(keys, defaults);
  for (const char* const side : {"encoder", "decoder"})
    if (const auto* const found = keys.if_contains(side); found != nullptr && found->as_object().empty())
      keys.erase(side);
  keys["type"] = config::to_json(config.type);
  return config::text_of(boost::json::object{{"model", std::move(keys)}}) + "\n";
}

inline boost::json::object figures_of(const interchange::VocabularyFigures& figures) {
  return {{"pieces_before", figures.pieces_before},
          {"pieces_after", figures.pieces_after},
          {"parts", figures.parts},
          {"skipped", figures.skipped},
          {"lines", figures.lines},
          {"same_lines", figures.same_lines},
          {"unknown_before", figures.unknown_before},
          {"unknown_after", figures.unknown_after},
          {"length_before", figures.length_before},
          {"length_after", figures.length_after}};
}

}  // namespace detail

/// The whole tool. `make_forward` is called when something runs the model.
inline int run_export(int argc, char** argv, const std::function<model::Forward()>& make_forward) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    ExportCommand command;
    if (!parse(command.cli, argc, argv, export_examples, context)) return Exit::ok;
    keep_freed_memory();  // tensors take turns in the same pages
    const interchange::Format& chosen = interchange::format_named(command.format);
    const model::Forward forward = command.runs_the_model() ? make_forward() : model::Forward{};
    if (command.verify) command.options.verify_with = forward;
    const model::StoredModel source = interchange::open_source(context, command.from, command.ema, command.task);
    if (command.print_model) {
      context.print(detail::model_text(source.config));
      context.print_result("export", {{"printed", "model"}});
      return Exit::ok;
    }
    command.options.quantization = command.quantization.value_or(interchange::default_quantization(chosen, source));
    if (!command.quantization && !chosen.is_unlisted)
      context.log.info("weights are written as {}, in which the model was trained; --quantization sets another type",
                       boost::describe::enum_to_string(command.options.quantization, ""));
    const auto changed = detail::changed_vocabulary(context, source, command, forward);
    const interchange::ExportReport report =
        chosen.write(context, changed ? changed->model : source, command.out, command.options);
    context.log.info("{}: {} parameters, {:.1f} MB, {:.1f} s", report.folder.string(), report.parameters,
                     static_cast<double>(report.bytes) / 1e6, report.seconds);
    boost::json::object figures{{"out", report.folder.string()},
                                {"format", command.format},
                                {"quantization", boost::describe::enum_to_string(command.options.quantization, "")},
                                {"step", source.step},
                                {"parameters", report.parameters},
                                {"bytes", report.bytes},
                                {"seconds", report.seconds}};
    if (report.verified) {
      figures["verified"] = true;
      figures["tensors_compared"] = *report.verified;
    }
    if (!source.task.empty()) figures["task"] = source.task;
    if (changed) figures["vocabulary"] = detail::figures_of(changed->figures);
    context.print_result("export", std::move(figures));
    return Exit::ok;
  });
}

}  // namespace argosy::app
