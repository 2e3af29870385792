#pragma once

#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <string>

#include "config/describe.hpp"
#include "plan/plan_lines.hpp"

/// Plans as `train --dry-run --json` prints them, for configurations given as JSON text.
namespace argosy::test {

inline constexpr double gib = 1 << 30, mib = 1 << 20;

/// Mistral 7B, rows of 8192, bf16, whole logits; `set`: what is set instead.
inline plan::RunConfig mistral(const std::vector<std::string>& set = {}) {
  config::Document document = config::Document::parse(
      R"({"run_dir": "r", "data": {"tokenizer": "t", "shards": "s", "corpora": [{"name": "c", "source": "a"}]},
          "model": {"type": "decoder", "preset": "mistral_7b", "vocab_size": 32000, "max_positions": 8192},
          "loss": {"chunk_bytes": 0}, "schedule": {"lr": 1e-4, "length": 500000},
          "batch": {"unit": "examples", "global_size": 128, "micro_size": 1, "sequence_length": 8192}})",
      "mistral.json");
  for (const std::string& assignment : set) document.set(assignment);
  return config::from_document<plan::RunConfig>(document);
}

inline spec::Architecture shape_of(const plan::RunConfig& config) { return spec::resolve(config.model, 0); }

inline plan::PlanTarget target(int nodes, int ranks_per_node, const char* gpu = "h100") {
  return {.layout = partition::Layout(std::vector<int>(static_cast<std::size_t>(nodes), ranks_per_node)),
          .gpu = plan::gpu_by_name(gpu)};
}
inline plan::PlanTarget with_memory(plan::PlanTarget target, std::optional<std::int64_t> rank_bytes) {
  target.rank_bytes = rank_bytes;
  return target;
}

/// T5 v1.1 of mt_base's sizes on one node.
inline plan::RunConfig t5(const std::vector<std::string>& set = {}) {
  config::Document document = config::Document::parse(
      R"({"run_dir": "r", "data": {"tokenizer": "t", "shards": "s",
                                   "corpora": [{"name": "c", "source": "a", "target": "b"}]},
          "model": {"preset": "mt_base", "vocab_size": 8000, "norm": "rms_norm", "norm_position": "pre", "bias": false,
                    "activation": "geglu", "encoder": {"position": "t5"}, "decoder": {"position": "t5"}},
          "schedule": {"lr": 1e-4, "length": 1000}, "batch": {"global_size": 65536, "micro_size": 8192}})",
      "t5.json");
  for (const std::string& assignment : set) document.set(assignment);
  return config::from_document<plan::RunConfig>(document);
}

inline plan::RunPlan run_plan_of(const plan::RunConfig& config, const plan::PlanTarget& target) {
  return plan::plan_run(config, shape_of(config), target);
}
inline boost::json::value plan_json(const plan::RunConfig& config, const plan::PlanTarget& target) {
  return plan::json_of(run_plan_of(config, target));
}

inline double number(const boost::json::value& json, const std::string& pointer) {
  return json.at_pointer(pointer).to_number<double>();
}

}  // namespace argosy::test
