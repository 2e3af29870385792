#include "plan/adapter_rank.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "plan/micro_size.hpp"
#include "plan/placement_plan.hpp"

namespace argosy::plan {
namespace {

std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / (1 << 20)); }

}  // namespace

std::string line_of(const AdapterRankChoice& choice) {
  return fmt::format("lora.rank auto: {}; with rows of full length a rank needs {} (estimate) of {}", choice.rank,
                     mebibytes(static_cast<double>(choice.forecast_bytes)),
                     mebibytes(static_cast<double>(choice.memory_bytes)));
}

AdapterRankChoice choose_adapter_rank(RunConfig config, std::int64_t pieces, const PlanTarget& target,
                                      const data::ShardIndex* shards) {
  if (!target.rank_bytes)
    throw_error(Fault::config, "lora.rank", "a number, since the memory of a rank is not known", "auto",
                "set lora.rank, or ARGOSY_RANK_MEMORY to the bytes that a rank may use");
  const data::StepSizes sizes = data::resolve_sizes(config.batch, target.layout.world());
  const double most = filled_share * static_cast<double>(*target.rank_bytes);
  AdapterRankChoice choice{.memory_bytes = *target.rank_bytes};
  for (const std::int64_t rank : spec::adapter_ranks) {
    config.lora->rank = choice.rank = rank;
    const spec::ModelSpec spec = spec_of(config, pieces);
    choice.forecast_bytes = full_length_bytes(config, spec, placed(target, config, spec, shards), sizes);
    if (static_cast<double>(choice.forecast_bytes) <= most) return choice;
  }
  throw_error(
      Fault::config, "lora.rank",
      fmt::format("{} per rank for rank {}", mebibytes(static_cast<double>(choice.forecast_bytes)), choice.rank),
      mebibytes(most), "use a smaller batch.micro_size, --set sharding.zero_stage=3 or sharding.recompute=block");
}

}  // namespace argosy::plan
