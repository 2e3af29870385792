#include "telemetry/sink.hpp"

#include <boost/json/value_from.hpp>
#include <cmath>

#include "telemetry/sinks.hpp"

namespace argosy::telemetry {
namespace {

template <class T>
std::unique_ptr<Sink> open(const SinkSetup& setup) {
  return std::make_unique<T>(setup);
}

}  // namespace

std::span<const SinkKind> sink_kinds() {
  static constexpr SinkKind kinds[] = {
      {"metrics.jsonl", [](const TelemetryConfig&) { return true; }, open<JsonLines>},
      {"tensorboard", [](const TelemetryConfig& config) { return config.tensorboard; }, open<EventFile>},
      {"wandb", [](const TelemetryConfig& config) { return config.wandb.mode != WandbMode::off; }, open<WandbFolder>},
  };
  return kinds;
}

boost::json::object figures_of(const StepRecord& r) {
  boost::json::object figures{{"step", r.last.step},
                              {"fraction_done", r.last.fraction_done},
                              {"epoch", r.last.epoch},
                              {"loss", r.loss},
                              {"nll", r.nll},
                              {"perplexity", std::exp(r.nll)},
                              {"lr", r.last.lr},
                              {"grad_norm", r.last.grad_norm},
                              {"n_clips", r.last.n_clips},
                              {"clip_frac", r.clip_frac},
                              {"truncated_frac", r.truncated_frac},
                              {"skipped", r.last.n_skipped},
                              {"total_tgt_tokens", r.last.total_tgt_tokens},
                              {"ranks", r.ranks},
                              {"src_tokens_per_s", r.src_tokens_per_s},
                              {"tgt_tokens_per_s", r.tgt_tokens_per_s},
                              {"padded_tokens_per_s", r.padded_tokens_per_s},
                              {"tflops_per_rank", r.tflops_per_rank},
                              {"mfu", boost::json::value_from(r.mfu)},
                              {"mfu_full", boost::json::value_from(r.mfu_full)},
                              {"memory_bytes", r.last.memory_bytes},
                              {"data_wait_ms", r.data_wait_ms},
                              {"step_ms", r.step_ms},
                              {"eta_s", boost::json::value_from(r.eta_s)}};
  for (const auto& [name, value] : r.of_parts) figures[name] = value;
  return figures;
}

std::vector<Figure> figures_of(const ValidationRecord& record) {
  std::vector<Figure> figures = record.figures;
  figures.insert(figures.end(), record.more.begin(), record.more.end());
  return figures;
}

}  // namespace argosy::telemetry
