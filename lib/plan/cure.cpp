#include "plan/cure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace argosy::plan {

partition::Layout nodes_like(const partition::Layout& layout, int nodes) {
  return partition::Layout(std::vector<int>(static_cast<std::size_t>(nodes), layout.slots()));
}

RunConfig with_sizes(RunConfig config, std::int64_t global_size, std::int64_t micro_size) {
  config.batch.global_size = global_size;
  config.batch.micro_size = micro_size;
  config.batch.accumulation.reset();
  return config;
}

std::string setting_of(Scheme scheme) {
  if (scheme == Scheme::hybrid) return "--set sharding.zero_stage=3 --set sharding.scope=hybrid";
  return fmt::format("--set sharding.zero_stage={}", scheme == Scheme::stage_2 ? 2 : 3);
}

namespace {

constexpr Recompute recomputing[] = {Recompute::activation, Recompute::full, Recompute::block};
constexpr Scheme sharded_further[] = {Scheme::stage_2, Scheme::stage_3, Scheme::hybrid};

bool is_allowed(const RunConfig& config, Scheme scheme) {
  return scheme != Scheme::hybrid || config.sharding.reduction != Reduction::elastic;
}

RunConfig with_recompute(RunConfig config, Recompute level) {
  config.sharding.recompute = level;
  return config;
}
RunConfig with_scheme(RunConfig config, Scheme scheme) {
  config.sharding.zero_stage = scheme == Scheme::stage_2 ? 2 : 3;
  config.sharding.scope = scheme == Scheme::hybrid ? ShardingScope::hybrid : ShardingScope::world;
  return config;
}
std::string micro_text(std::int64_t size) { return fmt::format("--set batch.micro_size={}", size); }
std::string recompute_text(Recompute level) {
  return fmt::format("--set sharding.recompute={}", boost::describe::enum_to_string(level, ""));
}

class Cure {
 public:
  Cure(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target, const data::StepSizes& sizes)
      : config_(config), spec_(spec), target_(target), sizes_(sizes) {}

  std::string find() {
    offer_smaller(config_, "");
    for (const Recompute level : recomputing) {
      if (level > config_.sharding.recompute) offer(with_recompute(config_, level), recompute_text(level));
    }
    for (const Scheme scheme : sharded_further) {
      if (scheme > scheme_of(config_.sharding) && is_allowed(config_, scheme))
        offer(with_scheme(config_, scheme), setting_of(scheme));
    }
    if (!best_.empty()) return best_;
    for (int nodes = 2 * target_.layout.nodes(); nodes <= most_nodes; nodes *= 2) {
      PlanTarget more = target_;
      more.layout = nodes_like(target_.layout, nodes);
      if (more.layout.world() > sizes_.micro_batches) break;
      if (*SchemePlanner(config_, spec_, more).memory(scheme_of(config_.sharding)).fits)
        return fmt::format("take {} nodes", nodes);
    }
    for (const Scheme scheme : sharded_further) {
      if (!is_allowed(config_, scheme)) continue;
      for (const Recompute level : recomputing) {
        const RunConfig both = with_recompute(with_scheme(config_, scheme), level);
        const std::string text = setting_of(scheme) + " and " + recompute_text(level);
        offer(both, text);
        offer_smaller(both, text + " and ");
      }
    }
    return best_.empty() ? "no micro-batch, recompute level or stage fits; use GPUs with more memory, or more of them"
                         : best_;
  }

 private:
  /// Takes it if it fits and takes less time than the best. A forecast costs more than a sum of bytes.
  bool offer(const RunConfig& config, const std::string& text) {
    const SchemePlanner planner{config, spec_, target_};
    const Scheme scheme = scheme_of(config.sharding);
    if (!*planner.memory(scheme).fits) return false;
    const double step_s = *planner.plan(scheme).step_s;
    if (best_.empty() || step_s < worth_it * best_step_s_) {
      best_ = text;
      best_step_s_ = step_s;
    }
    return true;
  }
  /// The largest divisor of the micro-batch that fits: smaller ones take no less time.
  void offer_smaller(const RunConfig& config, const std::string& before) {
    for (std::int64_t parts = 2; parts <= std::min<std::int64_t>(sizes_.micro_size, 64); ++parts) {
      if (sizes_.micro_size % parts != 0) continue;
      const std::int64_t size = sizes_.micro_size / parts;
      if (offer(with_sizes(config, sizes_.global_size, size), before + micro_text(size))) return;
    }
  }

  static constexpr double worth_it = 0.98;  // a later, larger change must save more than 2 % of a step

  const RunConfig& config_;
  const spec::ModelSpec& spec_;
  const PlanTarget& target_;
  const data::StepSizes& sizes_;
  std::string best_;
  double best_step_s_ = 0;
};

}  // namespace

std::string cheapest_cure(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target,
                          const data::StepSizes& sizes) {
  return Cure(config, spec, target, sizes).find();
}

}  // namespace argosy::plan
