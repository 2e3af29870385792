#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/scheme_plan.hpp"

/// What `batch.micro_size: auto` stands for: the largest size that divides a step among the ranks and whose forecast
/// stays 10 % below the memory of a rank, with rows as long as the model allows. Pure and torch-free.
namespace argosy::plan {

/// Share of a rank's memory that micro-batches may fill; the rest is for what no forecast counts.
inline constexpr double filled_share = 0.9;

/// Sizes that divide `global_size` among `world` ranks, ascending: each holds a row of full length, and leaves ranks
/// idle for at most 5 % of the time. Where no size does both, those that come nearest.
[[nodiscard]] std::vector<std::int64_t> legal_micro_sizes(const RunConfig& config, std::int64_t global_size, int world);

/// A micro-batch as one rank may meet it: rows as long as the model allows. Under padded_tokens the rows of pairs have
/// one position on the side that needs less memory.
struct FullRows {
  std::int64_t rows = 0, source_width = 0, target_width = 0;
  [[nodiscard]] MicroBatch positions() const;
};
[[nodiscard]] FullRows full_rows(const RunConfig& config, const spec::Architecture& shape, std::int64_t micro_size);

/// Bytes of the fullest rank with micro-batches of `sizes` at full length. Without a GPU, the copy for checkpoints
/// counts as well; breadth first, the values kept of all micro-batches of a step.
[[nodiscard]] std::int64_t full_length_bytes(const RunConfig& config, const spec::ModelSpec& spec,
                                             const PlanTarget& target, const data::StepSizes& sizes);

struct MicroSizeChoice {
  data::StepSizes sizes;
  std::int64_t forecast_bytes = 0, memory_bytes = 0;  // of the fullest rank; of a rank
};
/// "batch.micro_size auto: 1000, accumulation 2; …"
[[nodiscard]] std::string line_of(const MicroSizeChoice& choice);

/// Throws Error{config} if the memory of a rank (target.rank_bytes) is unknown, or if not even the smallest size fits.
[[nodiscard]] MicroSizeChoice choose_micro_size(const RunConfig& config, const spec::ModelSpec& spec,
                                                const PlanTarget& target);
/// Throws Error{config}: `bytes` of the smallest size are too many.
[[noreturn]] void throw_none_fits(const RunConfig& config, std::int64_t micro_size, std::int64_t bytes,
                                  std::int64_t memory_bytes);

/// The configuration with a number for batch.micro_size.
[[nodiscard]] RunConfig with_micro_size(RunConfig config, const data::StepSizes& sizes);

}  // namespace argosy::plan
