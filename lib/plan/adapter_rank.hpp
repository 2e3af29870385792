#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/shard_index.hpp"
#include "plan/scheme_plan.hpp"

/// What `lora.rank: auto` stands for: the largest of spec::adapter_ranks whose forecast stays 10 % below the memory of
/// a rank, with rows as long as the model allows. Pure and torch-free.
namespace argosy::plan {

struct AdapterRankChoice {
  std::int64_t rank = 0;
  std::int64_t forecast_bytes = 0, memory_bytes = 0;  // of the fullest rank; of a rank
};
/// "lora.rank auto: 256; …"
[[nodiscard]] std::string line_of(const AdapterRankChoice& choice);

/// pieces: of the tokenizer; target: without a placement, which the rank may change. Throws Error{config} if the memory
/// of a rank (target.rank_bytes) is unknown, or if not even the smallest rank fits.
[[nodiscard]] AdapterRankChoice choose_adapter_rank(RunConfig config, std::int64_t pieces, const PlanTarget& target,
                                                    const data::ShardIndex* shards = nullptr);

}  // namespace argosy::plan
