#include "train/run_plan.hpp"

#include <boost/json/array.hpp>

#include "core/error.hpp"
#include "model/units.hpp"
#include "partition/flat_space.hpp"

namespace argosy::train {
namespace {

constexpr std::int64_t stored_alignment = 1 << 20;  // of a dataset in a shard file (lib/checkpoint/FORMAT.md)

double mib(double bytes) { return bytes / (1 << 20); }

std::string grouped(std::int64_t value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

}  // namespace

RunPlan plan_run(const RunConfig& config, const model::ModelShape& shape, const partition::Layout& layout) {
  RunPlan plan;
  const bool bf16 = config.precision.mode == PrecisionMode::bf16;
  std::vector<std::int64_t> owned(static_cast<std::size_t>(layout.world()), 0);
  std::int64_t copied_gradients = 0;
  for (const model::UnitSpec& unit : model::unit_specs(shape)) {
    const partition::FlatSpace space(unit.params, layout);
    plan.parameters += space.parameters();
    plan.padded_parameters += space.padded_size();
    for (int rank = 0; rank < layout.world(); ++rank) {
      const std::int64_t size = space.owned_size(rank);
      owned[static_cast<std::size_t>(rank)] += size;
      plan.checkpoint_bytes += 3 * ((4 * size + stored_alignment - 1) / stored_alignment * stored_alignment);
    }
  }
  const std::int64_t fullest = *std::max_element(owned.begin(), owned.end());
  const bool one_slice = layout.nodes() * layout.slots() == layout.world();
  if (!one_slice) copied_gradients = 4 * fullest;
  plan.weights_bytes = plan.padded_parameters * (bf16 ? 2 : 4);
  plan.gradients_bytes = plan.padded_parameters * 4 + copied_gradients;
  plan.optimizer_bytes = fullest * (bf16 || !one_slice ? 12 : 8);
  const auto d = static_cast<double>(shape.width), kv = static_cast<double>(shape.kv_heads * shape.head_size);
  const auto ff = static_cast<double>(shape.ff) * (shape.activation == model::Activation::swiglu ? 3 : 2);
  plan.activation_bytes_per_position =
      (6 * d + 2 * kv + ff) * (bf16 ? 2 : 4) *
      static_cast<double>(std::max(shape.encoder_layers, std::int64_t{0}) + shape.decoder_layers);
  plan.sizes = data::resolve_sizes(config.batch, layout.world());
  const optim::Schedule schedule = optim::resolve(config.schedule, is_language_model(config));
  for (const double at : {1.0, schedule.warmup, schedule.decay_end / 2, schedule.decay_end}) {
    if (at > 0) plan.learning_rates.emplace_back(at, optim::learning_rate(schedule, at));
  }
  return plan;
}

std::vector<std::string> lines_of(const RunPlan& plan, const RunConfig& config, const model::ModelShape& shape,
                                  int world) {
  std::vector<std::string> lines;
  const data::StepSizes& sizes = plan.sizes;
  lines.push_back(
      fmt::format("{} parameters; exportable as {}", grouped(plan.parameters), model::exportable_as(shape)));
  const std::int64_t state = plan.weights_bytes + plan.gradients_bytes + plan.optimizer_bytes;
  lines.push_back(
      fmt::format("memory of a rank of {}, stage 1: weights {:.1f} MiB, gradients {:.1f}, master and moments {:.1f}, "
                  "together {:.1f} MiB",
                  world, mib(static_cast<double>(plan.weights_bytes)), mib(static_cast<double>(plan.gradients_bytes)),
                  mib(static_cast<double>(plan.optimizer_bytes)), mib(static_cast<double>(state))));
  const bool examples = config.batch.unit == data::BatchUnit::examples;
  const double positions =
      static_cast<double>(sizes.micro_size) * (examples ? static_cast<double>(config.batch.sequence_length) : 0.5);
  lines.push_back(fmt::format("activations of a micro-batch: about {:.1f} MiB",
                              mib(plan.activation_bytes_per_position * positions)));
  const char* unit = examples ? "examples" : "padded_tokens";
  lines.push_back(fmt::format("a step: {} {} = {} micro-batches of {} on {} ranks, accumulation {}{}",
                              grouped(sizes.global_size), unit, sizes.micro_batches, grouped(sizes.micro_size), world,
                              sizes.accumulation,
                              sizes.idle_share > 0 ? fmt::format(", {:.1f} % idle", 100 * sizes.idle_share) : ""));
  std::string length = fmt::format("length {}", config.schedule.length.text());
  if (examples && is_language_model(config)) {
    const double step = static_cast<double>(sizes.global_size * config.batch.sequence_length);
    length += fmt::format("; {} tgt_tokens a step", grouped(static_cast<std::int64_t>(step)));
    if (config.schedule.length.unit == config::Period::Unit::step) {
      length += fmt::format(", {} in all", grouped(static_cast<std::int64_t>(step * config.schedule.length.count)));
    }
  }
  lines.push_back(length);
  std::string rates = "learning rate";
  for (const auto& [at, lr] : plan.learning_rates) rates += fmt::format("  {:.4g} at {:.6g}", lr, at);
  lines.push_back(rates);
  lines.push_back(fmt::format("disk: {:.1f} MiB a checkpoint, {} kept, and one at each export",
                              mib(static_cast<double>(plan.checkpoint_bytes)), config.checkpoint.max_checkpoints));
  return lines;
}

boost::json::object json_of(const RunPlan& plan) {
  boost::json::array rates;
  for (const auto& [at, lr] : plan.learning_rates) rates.push_back(boost::json::array{at, lr});
  return {{"parameters", plan.parameters},
          {"weights_bytes", plan.weights_bytes},
          {"gradients_bytes", plan.gradients_bytes},
          {"optimizer_bytes", plan.optimizer_bytes},
          {"checkpoint_bytes", plan.checkpoint_bytes},
          {"micro_batches", plan.sizes.micro_batches},
          {"accumulation", plan.sizes.accumulation},
          {"learning_rates", std::move(rates)}};
}

}  // namespace argosy::train
