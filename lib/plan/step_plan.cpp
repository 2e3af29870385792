#include "plan/step_plan.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "partition/flat_space.hpp"

namespace argosy::plan {

PlanShape plan_shape(const spec::ModelSpec& spec, const partition::Layout& layout, std::set<std::size_t> whole) {
  PlanShape plan;
  plan.whole = std::move(whole);
  plan.routes = spec.routes;
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

/// A visit of a micro-batch slot that some rank computes.
struct Compute {
  OpKind kind = OpKind::forward;
  int visit = 0, micro_batch = 0;
  bool own = true;  // this rank does
};

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
    if (routes_.empty()) {
      routes_.emplace_back(shape.visit_units.size());
      std::iota(routes_.back().begin(), routes_.back().end(), std::size_t{0});
    }
    if (slots_.empty()) slots_.assign(static_cast<std::size_t>(choices.micro_batches), {.own = 0, .all = {0}});
    reuses_ = std::all_of(shape.components.begin(), shape.components.end(), [](std::size_t of) { return of == 0; });
  }

  StepPlan run() {
    for (const SlotRoutes& slot : slots_) plan_.ways.push_back(slot.own ? way_of(*slot.own) : Way{});
    const std::vector<Compute> computes = compute_order();
    find_last(computes);
    for (std::size_t i = 0; i < computes.size(); ++i) {
      fetch(computes, i);
      compute(computes[i], i);
    }
    if (trains_) update();
    plan_.reduce_every = choices_.reduce_every;
    return std::move(plan_);
  }

 private:
  static constexpr int none = -1;

  /// Of a route whose units are all frozen, the loss is still computed with a backward pass.
  [[nodiscard]] Way way_of(std::size_t route) const {
    const std::vector<std::size_t>& visits = routes_[route];
    const auto trained = std::ranges::find_if(visits, [&](std::size_t visit) {
      return !std::ranges::all_of(shape_.visit_units[visit], [&](std::size_t unit) { return is_frozen(unit); });
    });
    return {.first = narrow<int>(visits.front()),
            .first_trained = narrow<int>(trained == visits.end() ? visits.back() : *trained)};
  }
  /// Forward and, if it trains, backward of all visits (backward: from the first one that is trained on) and
  /// micro-batches, in the order of accumulation.
  [[nodiscard]] std::vector<Compute> compute_order() const {
    std::vector<Compute> ops;
    const int visits = narrow<int>(shape_.visit_units.size());
    const int together = choices_.order == AccumulationOrder::breadth_first ? choices_.micro_batches : 1;
    struct Marks {  // by visit
      std::vector<bool> forward, backward;
    };
    struct Passed {
      Marks any, own;
    };
    const auto mark = [&](Marks& marks, std::size_t route) {
      const auto trained = static_cast<std::size_t>(way_of(route).first_trained);
      for (const std::size_t v : routes_[route]) {
        marks.forward[v] = true;
        if (v >= trained) marks.backward[v] = true;
      }
    };
    const Marks none_yet{std::vector<bool>(shape_.visit_units.size()), std::vector<bool>(shape_.visit_units.size())};
    std::vector<Passed> passed(slots_.size(), {none_yet, none_yet});
    for (std::size_t m = 0; m < slots_.size(); ++m) {
      for (const std::size_t route : slots_[m].all) mark(passed[m].any, route);
      if (slots_[m].own) mark(passed[m].own, *slots_[m].own);
    }
    for (int first = 0; first < choices_.micro_batches; first += together) {
      const auto visit = [&](OpKind kind, int v) {
        for (int m = first; m < first + together; ++m) {
          const auto& [any, own] = passed[static_cast<std::size_t>(m)];
          const auto marks = kind == OpKind::forward ? &Marks::forward : &Marks::backward;
          const auto at = static_cast<std::size_t>(v);
          if ((any.*marks)[at]) ops.push_back({kind, v, m, (own.*marks)[at]});
        }
      };
      for (int v = 0; v < visits; ++v) visit(OpKind::forward, v);
      for (int v = visits - 1; trains_ && v >= 0; --v) visit(OpKind::backward, v);
    }
    return ops;
  }
  /// Where each unit is read for the last time, in a slot and at all.
  void find_last(const std::vector<Compute>& computes) {
    for (std::size_t i = 0; i < computes.size(); ++i) {
      if (computes[i].kind != OpKind::backward) continue;
      for (const std::size_t unit : units_of(computes[i])) {
        last_[unit] = i;
        last_of_slot_[{unit, computes[i].micro_batch}] = i;
      }
    }
  }
  [[nodiscard]] const std::vector<std::size_t>& units_of(const Compute& op) const {
    return shape_.visit_units[static_cast<std::size_t>(op.visit)];
  }
  [[nodiscard]] std::size_t own_unit(const Compute& op) const { return units_of(op).front(); }
  /// The rotating buffer of its weights, on ranks that have it.
  [[nodiscard]] int turn_of(std::size_t unit) const { return rotates_weights(choices_.scheme) ? turns_[unit] : none; }
  [[nodiscard]] int weights_of(std::size_t unit) const { return is_idle(unit) ? none : turn_of(unit); }
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

  /// Gathers what op `i` needs, and ahead of it what comes next and has a buffer that is not needed before. A rank
  /// looks as far ahead as those that have more components: all operations of all ranks then have one order, in which
  /// each rank has its own, so that no ranks wait for each other.
  void fetch(const std::vector<Compute>& computes, std::size_t i) {
    if (i > 0 && !rotates_weights(choices_.scheme)) return;  // everything is gathered once, at the beginning
    std::array<bool, 2> taken{};
    for (std::size_t j = i; j < computes.size(); ++j) {
      for (const std::size_t each : units_of(computes[j])) {
        if (weights_of(each) == none && gathered_[each] == none && !is_complete(each) && !is_idle(each))
          gather(each, Levels::both);
      }
      const std::size_t unit = own_unit(computes[j]);
      if (turn_of(unit) == none) continue;
      const auto b = static_cast<std::size_t>(turn_of(unit));
      if (taken[b] && (!reuses_ || holds_[b] != static_cast<int>(unit))) return;
      taken[b] = true;
      if (holds_[b] == static_cast<int>(unit)) continue;
      holds_[b] = static_cast<int>(unit);
      if (choices_.scheme == Scheme::hybrid) {
        // Across nodes a unit ahead: only the step inside the node needs the buffer.
        gather_across_nodes(unit);
        if (!is_idle(unit)) gather(unit, Levels::inner);
        if (const auto next = next_rotating(computes, j)) gather_across_nodes(*next);
      } else if (!is_idle(unit)) {
        gather(unit, Levels::both);
      }
    }
  }
  [[nodiscard]] std::optional<std::size_t> next_rotating(const std::vector<Compute>& computes, std::size_t i) const {
    const auto next = std::find_if(
        computes.begin() + static_cast<std::ptrdiff_t>(i), computes.end(),
        [&](const Compute& op) { return turn_of(own_unit(op)) != none && own_unit(op) != own_unit(computes[i]); });
    return next == computes.end() ? std::nullopt : std::optional(own_unit(*next));
  }
  void gather_across_nodes(std::size_t unit) {
    if (is_idle(unit) || across_nodes_[unit] != none) return;
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
    if (buffer != none) {
      int& unneeded = unneeded_[static_cast<std::size_t>(buffer)];
      if (unneeded != none) op.waits_for.push_back(unneeded);  // before the rank's own slice is written
      unneeded = none;
    }
    if (levels == Levels::inner) op.waits_for.push_back(across_nodes_[unit]);  // its result is copied, then gathered
    gathered_[unit] = add(std::move(op));
    is_waited_for_[unit] = false;
  }

  void compute(const Compute& what, std::size_t i) {
    const std::size_t unit = own_unit(what);
    const int buffer = weights_of(unit);
    if (what.own) compute_own(what, buffer);
    if (!what.own && buffer != none && !is_waited_for_[unit]) {  // it is gathered again for each use
      unneeded_[static_cast<std::size_t>(buffer)] = gathered_[unit];
      is_waited_for_[unit] = !reuses_;
    }
    if (turn_of(unit) != none && !reuses_) holds_[static_cast<std::size_t>(turn_of(unit))] = none;
    if (what.kind != OpKind::backward) return;
    for (const std::size_t each : units_of(what)) {
      if (is_frozen(each) || is_idle(each)) continue;
      if (what.own) last_writer_[each] = {static_cast<int>(plan_.ops.size()) - 1, what.micro_batch};
    }
    for (const std::size_t each : units_of(what)) {
      if (!is_frozen(each) && !is_idle(each)) reduce_if_complete(what, each, i);
    }
  }
  void compute_own(const Compute& what, int buffer) {
    const std::size_t unit = own_unit(what);
    const std::size_t route = slots_[static_cast<std::size_t>(what.micro_batch)].own.value();
    const bool is_loss = static_cast<std::size_t>(what.visit) == routes_[route].back();
    const bool writes_gradients = what.kind == OpKind::backward || (is_loss && trains_);
    Op op{.kind = what.kind,
          .visit = what.visit,
          .unit = static_cast<int>(unit),
          .micro_batch = what.micro_batch,
          .weights = buffer,
          .gradients = writes_gradients ? gradients_of(unit) : none};
    for (const std::size_t each : units_of(what)) {
      if (!is_waited_for_[each]) op.waits_for.push_back(gathered_[each]);
      is_waited_for_[each] = true;
    }
    for (const std::size_t each : units_of(what)) {
      if (writes_gradients) take_buffer(each, op);
    }
    const int index = add(std::move(op));
    if (buffer != none) last_reader_[static_cast<std::size_t>(buffer)] = index;
  }
  /// Lets `op` wait for the reduction that frees the gradient buffer of a unit.
  void take_buffer(std::size_t unit, Op& op) {
    const auto reduce = reducing_.find(gradient_place(unit));
    if (reduce == reducing_.end()) return;
    op.waits_for.push_back(reduce->second);
    reducing_.erase(reduce);
  }
  [[nodiscard]] std::size_t gradient_place(std::size_t unit) const {
    return gradients_of(unit) == none ? 2 + unit : static_cast<std::size_t>(gradients_of(unit));
  }

  void reduce_if_complete(const Compute& what, std::size_t unit, std::size_t i) {
    const bool rotates = gradients_of(unit) != none;
    const bool each = choices_.reduce_every == ReduceEvery::micro_batch ||
                      (rotates && choices_.order == AccumulationOrder::depth_first);
    const bool last = last_.at(unit) == i;
    if (each ? last_of_slot_.at({unit, what.micro_batch}) != i : !last) return;
    const bool in_node = rotates && choices_.scheme == Scheme::hybrid;
    const auto writer = last_writer_.find(unit);
    const bool writes = writer != last_writer_.end() && (!each || writer->second.second == what.micro_batch);
    Op op = of_unit(OpKind::reduce, Stream::reduce, unit);
    op.micro_batch = writes ? writer->second.second : none;
    Op across_nodes = op;
    op.gradients = gradients_of(unit);
    op.levels = in_node ? Levels::inner : Levels::both;
    op.continues = !reduced_.insert(unit).second;
    if (writes) {
      op.waits_for = {writer->second.first};
    } else {
      take_buffer(unit, op);
    }
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
    for (std::size_t u = 0; u < turns_.size(); ++u)
      if (!is_waited_for_[u] && gathered_[u] != none) norm.waits_for.push_back(gathered_[u]);
    for (const int unneeded : unneeded_)
      if (unneeded != none) norm.waits_for.push_back(unneeded);
    add(std::move(norm));
    const std::vector<std::size_t> updated(reduced_.begin(), reduced_.end());
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
  std::vector<std::vector<std::size_t>> routes_ = shape_.routes;
  std::vector<SlotRoutes> slots_ = choices_.slots;
  const std::vector<int> turns_;
  StepPlan plan_;
  std::vector<int> gathered_;      // by unit: the gather that filled its buffer
  std::vector<int> across_nodes_;  // by unit: the gather across nodes
  std::vector<bool> is_waited_for_;
  std::array<int, 2> holds_{none, none}, last_reader_{none, none};  // by rotating weight buffer: unit, op
  std::map<std::size_t, int> reducing_;      // by gradient buffer: the reduce that nobody has waited for
  std::array<int, 2> unneeded_{none, none};  // by rotating weight buffer: a gather that only other ranks need
  std::set<std::size_t> reduced_;            // units
  std::map<std::size_t, std::size_t> last_;  // by unit: number of a Compute
  std::map<std::pair<std::size_t, int>, std::size_t> last_of_slot_;  // by unit and slot
  std::map<std::size_t, std::pair<int, int>> last_writer_;           // by unit: op of this rank, slot
};

}  // namespace

std::vector<SlotRoutes> slots_of(std::span<const int> routes, const data::Dealt& dealt, int canonical_rank) {
  std::vector<SlotRoutes> slots;
  for (const std::vector<int>& numbers : dealt) {
    SlotRoutes& slot = slots.emplace_back();
    for (int rank = 0; const int number : numbers) {
      const int route = number < 0 ? -1 : routes[static_cast<std::size_t>(number)];
      if (route >= 0 && rank == canonical_rank) slot.own = static_cast<std::size_t>(route);
      if (route >= 0) slot.all.insert(static_cast<std::size_t>(route));
      ++rank;
    }
  }
  return slots;
}

StepPlan plan_step(const PlanShape& shape, const PlanChoices& choices) {
  const bool sums_each = choices.reduce_every == ReduceEvery::micro_batch;
  ARGOSY_CHECK(!sums_each || (choices.order == AccumulationOrder::depth_first && choices.scheme != Scheme::hybrid),
               "a reduction of each micro-batch, breadth first or by level");
  return Planner(shape, choices, true).run();
}

StepPlan plan_forward(const PlanShape& shape, Scheme scheme, std::size_t route, std::set<std::size_t> idle) {
  const PlanChoices choices{.scheme = scheme, .idle = std::move(idle), .slots = {{.own = route, .all = {route}}}};
  return Planner(shape, choices, false).run();
}

}  // namespace argosy::plan
