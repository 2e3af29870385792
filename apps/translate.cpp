#include <algorithm>
#include <boost/json/value_from.hpp>
#include <optional>

#include "interchange/source.hpp"
#include "kernels/tensor_memory.hpp"
#include "translate_options.hpp"

int main(int argc, char** argv) {
  using namespace argosy;
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    app::TranslateCommand command;
    if (!app::parse(command.cli, argc, argv, app::translate_examples, context)) return Exit::ok;
    command.resolve();

    const double begin_s = context.clock.monotonic_s();
    kernels::keep_tensor_memory();
    decode::TextTranslation text{context, command.files};
    model::StoredModel model = interchange::open_source(context, command.directory, command.ema, command.task);
    const std::int64_t step = model.step;
    std::optional<decode::LoadedModel> loaded;
    std::optional<model::Inference> inference;
    comm::agree(context.world, [&] {
      loaded = decode::load_model(std::move(model), c10::kCPU, command.precision);
      inference.emplace(*loaded->model, command.precision == decode::Precision::int8 ? kernels::PackedType::int8
                                                                                     : kernels::PackedType::same);
    });
    const double loaded_s = context.clock.monotonic_s();
    double log_probability = 0;
    const decode::TextReport report = text.run([&](const decode::TextPart& part) {
      if (!command.score)
        return decode::translate_lines(context.world, *inference, loaded->tokenizer, part, command.options);
      auto scored = decode::score_lines(context.world, *inference, loaded->tokenizer, part, command.score_options);
      for (const decode::Translation& line : scored) log_probability += line.log_probability;
      return scored;
    });
    const double seconds = context.clock.monotonic_s() - loaded_s - report.scoring_s;

    boost::json::object figures{{"step", step},
                                {"lines", report.lines},
                                {"precision", boost::describe::enum_to_string(command.precision, "")},
                                {"load_s", loaded_s - begin_s},
                                {"seconds", seconds},
                                {"lines_per_s", static_cast<double>(report.lines) / std::max(1e-9, seconds)}};
    if (!command.task.empty()) figures["task"] = command.task;
    if (command.score) {
      figures["log_probability"] = log_probability;
    } else {
      figures["beam"] = command.options.search.beam;
    }
    if (report.scores) {
      figures["scoring_s"] = report.scoring_s;
      figures["bleu"] = report.scores->bleu;
      figures["chrf"] = report.scores->chrf;
      figures["ter"] = report.scores->ter;
      figures["signatures"] = boost::json::value_from(decode::score_signatures());
    }
    context.print_result("translate", std::move(figures));
    return Exit::ok;
  });
}
