#include "plan/micro_size.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace argosy::plan {
namespace {

constexpr double most_idle = 0.05;

double in_mebi(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d * d != number) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

/// Of a step in micro-batches of `micro_size`; absent: they are too many.
std::optional<data::StepSizes> sizes_with(const RunConfig& config, std::int64_t global_size, std::int64_t micro_size,
                                          int world) {
  data::BatchConfig batch = config.batch;
  batch.global_size = global_size;
  batch.micro_size = micro_size;
  batch.accumulation.reset();
  try {
    return data::resolve_sizes(batch, world);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Positions of the longest example, in the unit of the configuration; rows are whole.
std::int64_t longest_row(const RunConfig& config) {
  if (config.batch.unit == data::BatchUnit::examples) return 1;
  return is_language_model(config) ? config.batch.sequence_length : 2 * config.model.max_positions;
}

double kept_bytes(const RunConfig& config, const spec::Architecture& shape, const FullRows& rows) {
  return activations_of(config, spec::as_plain(shape), rows.positions()).total();
}

}  // namespace

MicroBatch FullRows::positions() const {
  const auto all = static_cast<double>(rows), source = static_cast<double>(source_width),
             target = static_cast<double>(target_width);
  return {.source_positions = all * source,
          .target_positions = all * target,
          .source_width = source,
          .target_width = target};
}

std::vector<std::int64_t> legal_micro_sizes(const RunConfig& config, std::int64_t global_size, int world) {
  std::vector<std::int64_t> sizes;
  std::vector<double> idle;
  for (const std::int64_t size : divisors_of(global_size)) {
    const auto step = sizes_with(config, global_size, size, world);
    if (!step || size > std::numeric_limits<std::int32_t>::max()) continue;
    sizes.push_back(size);
    idle.push_back(step->idle_share);
  }
  const auto keep_if = [&](const auto& good) {
    std::vector<std::int64_t> kept;
    std::vector<double> kept_idle;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (!good(sizes[i], idle[i])) continue;
      kept.push_back(sizes[i]);
      kept_idle.push_back(idle[i]);
    }
    if (kept.empty()) return;
    sizes = std::move(kept);
    idle = std::move(kept_idle);
  };
  const std::int64_t row = longest_row(config);
  const bool whole_rows = is_language_model(config);  // what is left of a micro-batch holds no row
  keep_if([&](std::int64_t size, double) { return size >= row; });
  keep_if([&](std::int64_t size, double) { return !whole_rows || size % row == 0; });
  if (sizes.empty()) return sizes;
  const double least = std::max(most_idle, *std::min_element(idle.begin(), idle.end()));
  keep_if([&](std::int64_t, double share) { return share <= least; });
  return sizes;
}

FullRows full_rows(const RunConfig& config, const spec::Architecture& shape, std::int64_t micro_size) {
  const bool examples = config.batch.unit == data::BatchUnit::examples;
  if (is_language_model(config)) {
    const std::int64_t width = config.batch.sequence_length;
    return {.rows = examples ? micro_size : std::max<std::int64_t>(1, micro_size / width), .target_width = width};
  }
  const std::int64_t longest = config.model.max_positions;
  if (examples) return {.rows = micro_size, .source_width = longest, .target_width = longest};
  const std::int64_t rows = (micro_size + longest) / (1 + longest);  // rounded up: the rows are a little shorter then
  const std::int64_t width = std::max<std::int64_t>(1, micro_size / rows - 1);
  const FullRows source{.rows = rows, .source_width = width, .target_width = 1},
      target{.rows = rows, .source_width = 1, .target_width = width};
  return kept_bytes(config, shape, source) > kept_bytes(config, shape, target) ? source : target;
}

std::int64_t full_length_bytes(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target,
                               const data::StepSizes& sizes) {
  const RunConfig sized = with_micro_size(config, sizes);
  const SchemePlanner planner{sized, spec, target};
  const StateMemory state = planner.memory(scheme_of(config.sharding)).state;
  const FullRows rows = full_rows(config, spec.architecture, sizes.micro_size);
  const ActivationMemory kept = activations_of(config, spec, rows.positions(), target.gpu);
  double together = kept.total();
  if (config.sharding.accumulation_order == AccumulationOrder::breadth_first)
    together += (sizes.accumulation - 1) * (kept.total() - kept.logits - kept.recomputed - kept.attention);
  const SpaceSizes& spaces = planner.spaces();
  const std::int64_t copy = target.gpu != nullptr ? 0 : copied_bytes(spaces);
  return state.state() + copy + std::max(state.scratch + static_cast<std::int64_t>(together), state.translating);
}

std::string line_of(const MicroSizeChoice& choice) {
  return fmt::format(
      "batch.micro_size auto: {}, accumulation {}; with rows of full length a rank needs {:.1f} MiB (estimate) of "
      "{:.1f} MiB",
      choice.sizes.micro_size, choice.sizes.accumulation, in_mebi(choice.forecast_bytes), in_mebi(choice.memory_bytes));
}

void throw_none_fits(const RunConfig& config, std::int64_t micro_size, std::int64_t bytes, std::int64_t memory_bytes) {
  std::vector<std::string> remedies;
  if (config.sharding.zero_stage < 3) remedies.emplace_back("--set sharding.zero_stage=3");
  if (config.sharding.recompute != Recompute::block) remedies.emplace_back("--set sharding.recompute=block");
  const bool rows = is_language_model(config);
  remedies.push_back(fmt::format("a smaller {}", rows ? "batch.sequence_length" : "model.max_positions"));
  const std::string wanted = fmt::format("{:.1f} MiB per rank", in_mebi(bytes));
  const std::string got = fmt::format("{:.1f} MiB", filled_share * in_mebi(memory_bytes));
  throw_claim(Fault::config,
              fmt::format("batch.micro_size: the smallest that divides the step, {}, needs {} with rows of full "
                          "length, but 90 % of a rank's memory is {}",
                          micro_size, wanted, got),
              "batch.micro_size", wanted, got, fmt::format("try {}", fmt::join(remedies, ", ")));
}

MicroSizeChoice choose_micro_size(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target) {
  if (!target.rank_bytes)
    throw_error(Fault::config, "batch.micro_size", "a number, since the memory of a rank is not known", "auto",
                "set batch.micro_size");
  const int world = target.layout.world();
  const std::vector<std::int64_t> legal = legal_micro_sizes(config, config.batch.global_size.value(), world);
  // Where a step is cut into too many, resolve_sizes says so.
  const std::int64_t smallest = legal.empty() ? 1 : legal.front();
  const auto choice_of = [&](std::int64_t size) {
    const data::StepSizes sizes = data::resolve_sizes(
        with_micro_size(config, {.global_size = *config.batch.global_size, .micro_size = size}).batch, world);
    return MicroSizeChoice{sizes, full_length_bytes(config, spec, target, sizes), *target.rank_bytes};
  };
  const auto fits = [&](std::int64_t size) {
    return static_cast<double>(choice_of(size).forecast_bytes) <=
           filled_share * static_cast<double>(*target.rank_bytes);
  };
  // Forecasts grow with the size, but for the rounding of rows.
  const auto too_large = std::partition_point(legal.begin(), legal.end(), fits);
  if (too_large == legal.begin())
    throw_none_fits(config, smallest, choice_of(smallest).forecast_bytes, *target.rank_bytes);
  return choice_of(*std::prev(too_large));
}

RunConfig with_micro_size(RunConfig config, const data::StepSizes& sizes) {
  config.batch.global_size = sizes.global_size;
  config.batch.micro_size = sizes.micro_size;
  config.batch.accumulation.reset();
  return config;
}

}  // namespace argosy::plan
