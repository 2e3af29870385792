#include "plan/step_plan.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "partition/flat_space.hpp"

namespace argosy::plan {

PlanShape plan_shape(const spec::ModelSpec& spec, const partition::Layout& layout, std::set<std::size_t> whole) {
  PlanShape plan;
  plan.whole = std::move(whole);
  std::vector<std::int64_t> sizes;
  std::int64_t largest_block = 0;
  for (const spec::Unit& unit : spec.units) {
    sizes.push_back(partition::FlatSpace(unit.flat(), layout).padded_size());
    if (unit.is_block) largest_block = std::max(largest_block, sizes.back());
    if (unit.frozen) plan.frozen.insert(sizes.size() - 1);
    plan.components.push_back(unit.component);
  }
  std::vector<int> readers(sizes.size());
  for (const spec::Visit& visit : spec.visits) {
    plan.visit_units.push_back(visit.units);
    for (const std::size_t unit : visit.units) ++readers[unit];
  }
  for (std::size_t u = 0; u < sizes.size(); ++u) plan.rotates.push_back(readers[u] <= 1 && sizes[u] <= largest_block);
  for (const spec::Visit& visit : spec.visits) {  // a visit has one of the rotating buffers
    for (std::size_t i = 1; i < visit.units.size(); ++i) plan.rotates[visit.units[i]] = false;
  }
  return plan;
}

std::vector<int> turns_of(const PlanShape& shape) {
  std::vector<int> turns(shape.rotates.size(), -1);
  int next = 0;
  for (const std::vector<std::size_t>& units : shape.visit_units) {
    const std::size_t unit = units.front();
    if (!shape.rotates[unit] || turns[unit] >= 0) continue;
    turns[unit] = next;
    next = 1 - next;
  }
  return turns;
}

namespace {

using comm::Levels;

struct Compute {
  OpKind kind = OpKind::forward;
  int visit = 0, micro_batch = 0;
};

/// Forward and, if it trains, backward of all visits (backward: from first_trained on) and micro-batches, in the order
/// of accumulation.
std::vector<Compute> compute_order(int visits, int first_trained, const PlanChoices& choices, bool trains) {
  std::vector<Compute> ops;
  const int together = choices.order == AccumulationOrder::breadth_first ? choices.micro_batches : 1;
  for (int first = 0; first < choices.micro_batches; first += together) {
    const auto visit = [&](OpKind kind, int v) {
      for (int m = first; m < first + together; ++m) ops.push_back({kind, v, m});
    };
    for (int v = 0; v < visits; ++v) visit(OpKind::forward, v);
    for (int v = visits - 1; trains && v >= first_trained; --v) visit(OpKind::backward, v);
  }
  return ops;
}

bool reads(const std::vector<std::size_t>& units, std::size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

class Planner {
 public:
  Planner(const PlanShape& shape, const PlanChoices& choices, bool trains)
      : shape_(shape),
        choices_(choices),
        trains_(trains),
        turns_(turns_of(shape)),
        gathered_(turns_.size(), none),
        across_nodes_(turns_.size(), none),
        is_waited_for_(turns_.size()) {
    for (std::size_t u = 0; u < turns_.size(); ++u) is_waited_for_[u] = is_complete(u) || is_idle(u);
    reuses_ = std::all_of(shape.components.begin(), shape.components.end(), [](std::size_t of) { return of == 0; });
  }

  StepPlan run() {
    const auto trained = std::ranges::find_if(shape_.visit_units, [&](const std::vector<std::size_t>& units) {
      return !std::ranges::all_of(units, [&](std::size_t unit) { return is_frozen(unit); });
    });
    plan_.first_trained = narrow<int>(trained - shape_.visit_units.begin());
    const std::vector<Compute> computes =
        compute_order(static_cast<int>(shape_.visit_units.size()), plan_.first_trained, choices_, trains_);
    for (std::size_t i = 0; i < computes.size(); ++i) {
      fetch(computes, i);
      compute(computes[i]);
    }
    if (trains_) update();
    plan_.micro_batches = choices_.micro_batches;
    plan_.reduce_every = choices_.reduce_every;
    return std::move(plan_);
  }

 private:
  static constexpr int none = -1;

  [[nodiscard]] const std::vector<std::size_t>& units_of(const Compute& op) const {
    return shape_.visit_units[static_cast<std::size_t>(op.visit)];
  }
  [[nodiscard]] std::size_t own_unit(const Compute& op) const { return units_of(op).front(); }
  [[nodiscard]] int weights_of(std::size_t unit) const {
    return rotates_weights(choices_.scheme) && !is_idle(unit) ? turns_[unit] : none;
  }
  [[nodiscard]] int gradients_of(std::size_t unit) const {
    return rotates_gradients(choices_.scheme) && !is_frozen(unit) && !is_idle(unit) ? turns_[unit] : none;
  }
  [[nodiscard]] std::size_t group_of(std::size_t unit) const {
    return shape_.components.empty() ? 0 : shape_.components[unit];
  }
  [[nodiscard]] bool is_idle(std::size_t unit) const { return choices_.idle.contains(group_of(unit)); }
  [[nodiscard]] bool is_frozen(std::size_t unit) const { return shape_.frozen.contains(unit); }
  /// Whether all its weights are in place from the start.
  [[nodiscard]] bool is_complete(std::size_t unit) const { return is_frozen(unit) && weights_of(unit) == none; }
  int add(Op op) {
    plan_.ops.push_back(std::move(op));
    return static_cast<int>(plan_.ops.size()) - 1;
  }

  /// Gathers what op `i` needs, and ahead of it what comes next and has a buffer that is not needed before.
  void fetch(const std::vector<Compute>& computes, std::size_t i) {
    if (i > 0 && !rotates_weights(choices_.scheme)) return;  // everything is gathered once, at the beginning
    std::array<bool, 2> taken{};
    for (std::size_t j = i; j < computes.size(); ++j) {
      for (const std::size_t each : units_of(computes[j])) {
        if (weights_of(each) == none && gathered_[each] == none && !is_complete(each) && !is_idle(each))
          gather(each, Levels::both);
      }
      const std::size_t unit = own_unit(computes[j]);
      const int buffer = weights_of(unit);
      if (buffer == none) continue;
      const auto b = static_cast<std::size_t>(buffer);
      if (taken[b] && (!reuses_ || holds_[b] != static_cast<int>(unit))) return;
      taken[b] = true;
      if (holds_[b] == static_cast<int>(unit)) continue;
      holds_[b] = static_cast<int>(unit);
      if (choices_.scheme == Scheme::hybrid) {
        // Across nodes a unit ahead: only the step inside the node needs the buffer.
        gather_across_nodes(unit);
        gather(unit, Levels::inner);
        if (const auto next = next_rotating(computes, j)) gather_across_nodes(*next);
      } else {
        gather(unit, Levels::both);
      }
    }
  }
  [[nodiscard]] std::optional<std::size_t> next_rotating(const std::vector<Compute>& computes, std::size_t i) const {
    const auto next = std::find_if(
        computes.begin() + static_cast<std::ptrdiff_t>(i), computes.end(),
        [&](const Compute& op) { return weights_of(own_unit(op)) != none && own_unit(op) != own_unit(computes[i]); });
    return next == computes.end() ? std::nullopt : std::optional(own_unit(*next));
  }
  void gather_across_nodes(std::size_t unit) {
    if (across_nodes_[unit] != none) return;
    Op op = of_unit(OpKind::gather, Stream::gather, unit);
    op.levels = Levels::outer;
    across_nodes_[unit] = add(std::move(op));
  }
  void gather(std::size_t unit, Levels levels) {
    const int buffer = weights_of(unit);
    Op op = of_unit(OpKind::gather, Stream::gather, unit);
    op.weights = buffer;
    op.levels = levels;
    if (buffer != none && last_reader_[static_cast<std::size_t>(buffer)] != none) {
      op.waits_for.push_back(last_reader_[static_cast<std::size_t>(buffer)]);
    }
    if (levels == Levels::inner) op.waits_for.push_back(across_nodes_[unit]);  // its result is copied, then gathered
    gathered_[unit] = add(std::move(op));
    is_waited_for_[unit] = false;
  }

  void compute(const Compute& what) {
    const std::size_t unit = own_unit(what);
    const bool is_loss = static_cast<std::size_t>(what.visit) + 1 == shape_.visit_units.size();
    const bool writes_gradients = what.kind == OpKind::backward || (is_loss && trains_);
    Op op{.kind = what.kind,
          .visit = what.visit,
          .unit = static_cast<int>(unit),
          .micro_batch = what.micro_batch,
          .weights = weights_of(unit),
          .gradients = writes_gradients ? gradients_of(unit) : none};
    for (const std::size_t each : units_of(what)) {
      if (!is_waited_for_[each]) op.waits_for.push_back(gathered_[each]);
      is_waited_for_[each] = true;
    }
    for (const std::size_t each : units_of(what)) {
      const auto reduce = reducing_.find(gradient_place(each));
      if (!writes_gradients || reduce == reducing_.end()) continue;
      op.waits_for.push_back(reduce->second);  // it frees the buffer
      reducing_.erase(reduce);
    }
    const int index = add(std::move(op));
    if (const int buffer = weights_of(unit); buffer != none) {
      last_reader_[static_cast<std::size_t>(buffer)] = index;
      if (!reuses_) holds_[static_cast<std::size_t>(buffer)] = none;
    }
    if (what.kind != OpKind::backward) return;
    for (const std::size_t each : units_of(what)) {
      if (!is_frozen(each) && !is_idle(each)) reduce_if_complete(what, each, index);
    }
  }
  [[nodiscard]] std::size_t gradient_place(std::size_t unit) const {
    return gradients_of(unit) == none ? 2 + unit : static_cast<std::size_t>(gradients_of(unit));
  }

  void reduce_if_complete(const Compute& what, std::size_t unit, int after) {
    const auto visits = shape_.visit_units.begin();
    const bool again = std::any_of(visits, visits + what.visit, [&](const auto& units) { return reads(units, unit); });
    if (again) return;  // on the way back
    const bool rotates = gradients_of(unit) != none, last = what.micro_batch + 1 == choices_.micro_batches;
    const bool each = choices_.reduce_every == ReduceEvery::micro_batch ||
                      (rotates && choices_.order == AccumulationOrder::depth_first);
    if (!each && !last) return;
    const bool in_node = rotates && choices_.scheme == Scheme::hybrid;
    Op op = of_unit(OpKind::reduce, Stream::reduce, unit);
    op.micro_batch = what.micro_batch;
    Op across_nodes = op;
    op.gradients = gradients_of(unit);
    op.levels = in_node ? Levels::inner : Levels::both;
    op.continues = each && what.micro_batch > 0;
    op.waits_for = {after};
    reducing_[gradient_place(unit)] = add(std::move(op));
    if (!in_node || !last) return;
    across_nodes.levels = Levels::outer;
    add(std::move(across_nodes));
  }

  /// Behind the last reduce of each group: a group's run in order.
  void update() {
    std::map<std::size_t, int> last;  // by group
    for (int i = 0; const Op& op : plan_.ops) {
      if (op.kind == OpKind::reduce) last[op.group] = i;
      ++i;
    }
    Op norm{.kind = OpKind::norm};
    for (const auto& [group, reduce] : last) norm.waits_for.push_back(reduce);
    add(std::move(norm));
    std::vector<std::size_t> updated;
    for (std::size_t u = 0; u < turns_.size(); ++u) {
      const bool is_here = std::any_of(shape_.visit_units.begin(), shape_.visit_units.end(),
                                       [u](const auto& units) { return reads(units, u); });
      if (is_here && !is_frozen(u) && !is_idle(u)) updated.push_back(u);
    }
    std::map<std::size_t, int> to_owners, frees;  // by unit; by gradient buffer: what ends its use
    const auto bring = [&](std::size_t u) {
      if (!shape_.whole.contains(u) || to_owners.contains(u)) return;
      Op op = of_unit(OpKind::to_owners, Stream::reduce, u);
      if (const auto free = frees.find(gradient_place(u)); free != frees.end()) op.waits_for.push_back(free->second);
      to_owners[u] = add(std::move(op));
    };
    for (std::size_t i = 0; i < updated.size(); ++i) {
      const std::size_t u = updated[i];
      Op update = of_unit(OpKind::update, Stream::compute, u);
      bring(u);
      // The next unit's matrices travel while those of this one are computed, unless they need its buffer.
      if (i + 1 < updated.size() && gradient_place(updated[i + 1]) != gradient_place(u)) bring(updated[i + 1]);
      if (shape_.whole.contains(u)) {
        Op back = of_unit(OpKind::to_shards, Stream::reduce, u);
        back.waits_for.push_back(to_owners.at(u));
        frees[gradient_place(u)] = add(std::move(back));
        update.waits_for.push_back(frees.at(gradient_place(u)));
      }
      add(std::move(update));
    }
  }
  [[nodiscard]] Op of_unit(OpKind kind, Stream stream, std::size_t unit) const {
    return {.kind = kind, .stream = stream, .unit = static_cast<int>(unit), .group = group_of(unit)};
  }

  const PlanShape& shape_;
  const PlanChoices& choices_;
  const bool trains_;
  bool reuses_ = true;  // what a rotating buffer still holds
  const std::vector<int> turns_;
  StepPlan plan_;
  std::vector<int> gathered_;      // by unit: the gather that filled its buffer
  std::vector<int> across_nodes_;  // by unit: the gather across nodes
  std::vector<bool> is_waited_for_;
  std::array<int, 2> holds_{none, none}, last_reader_{none, none};  // by rotating weight buffer: unit, op
  std::map<std::size_t, int> reducing_;  // by gradient buffer: the reduce that nobody has waited for
};

}  // namespace

StepPlan plan_step(const PlanShape& shape, const PlanChoices& choices) {
  const bool sums_each = choices.reduce_every == ReduceEvery::micro_batch;
  ARGOSY_CHECK(!sums_each || (choices.order == AccumulationOrder::depth_first && choices.scheme != Scheme::hybrid),
               "a reduction of each micro-batch, breadth first or by level");
  return Planner(shape, choices, true).run();
}

StepPlan plan_forward(const PlanShape& shape, Scheme scheme) {
  const PlanChoices choices{.scheme = scheme};
  return Planner(shape, choices, false).run();
}

}  // namespace argosy::plan
