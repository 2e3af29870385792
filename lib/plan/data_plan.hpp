#pragma once

#include <boost/describe.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/shard_index.hpp"
#include "plan/run_config.hpp"

/// How far a run gets through its data, from the counts that preprocess left in the index of the token shards. No text
/// is read. Pure and torch-free.
namespace argosy::plan {

struct CorpusPlan {
  std::string name;
  double examples = 0, src_tokens = 0, tgt_tokens = 0;  // of the part to train on
  double share = 0;                                     // of the examples drawn, while all corpora are drawn from
  double passes = 0;                                    // through it in the whole run
};
BOOST_DESCRIBE_STRUCT(CorpusPlan, (), (name, examples, src_tokens, tgt_tokens, share, passes))

struct DataPlan {
  std::vector<CorpusPlan> corpora;
  double steps_per_epoch = 0, steps = 0, epochs = 0;  // of the run: by schedule.length
};
BOOST_DESCRIBE_STRUCT(DataPlan, (), (corpora, steps_per_epoch, steps, epochs))

/// An estimate: padding is taken for 2 % of a step of pairs, a row of a language model for full, and `start` and `end`
/// of corpora for absent. nullopt: the index has other corpora than the configuration. Throws Error{data} for one
/// without examples.
[[nodiscard]] std::optional<DataPlan> plan_data(const RunConfig& config, const data::StepSizes& sizes,
                                                const data::ShardIndex& index);

}  // namespace argosy::plan
