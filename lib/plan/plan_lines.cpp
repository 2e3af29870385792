#include "plan/plan_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>
#include <cmath>

#include "core/error.hpp"

namespace argosy::plan {

namespace json = boost::json;

namespace {

constexpr double kGib = 1 << 30, kMib = 1 << 20;

std::string grouped(double value) {
  std::string text = fmt::format("{:.0f}", value);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}
std::string grouped(std::int64_t value) { return grouped(static_cast<double>(value)); }

std::string name_of(Scheme scheme) { return boost::describe::enum_to_string(scheme, ""); }

/// Small models are planned in MiB.
struct Unit {
  double bytes;
  const char* name;
};
Unit unit_for(std::int64_t size_bytes) {
  return static_cast<double>(size_bytes) >= kGib ? Unit{kGib, "GiB"} : Unit{kMib, "MiB"};
}

bool is_ours(Scheme scheme) { return scheme != Scheme::replicated && scheme != Scheme::hsdp; }

void add_memory(std::vector<std::string>& lines, const RunPlan& plan) {
  const Unit unit = unit_for(plan.chosen().total_bytes);
  const auto in_units = [&](auto bytes) { return static_cast<double>(bytes) / unit.bytes; };
  const partition::Layout& layout = plan.target.layout;
  std::string title = fmt::format("memory of a rank of {} on {} nodes, {}", layout.world(), layout.nodes(), unit.name);
  if (plan.target.gpu != nullptr) {
    title += fmt::format("; {}: {:.1f}, context {:.1f} taken off", plan.target.gpu->name,
                         in_units(capacity_bytes(*plan.target.gpu)), in_units(kContextGib * kGib));
  }
  lines.push_back(title);
  lines.push_back(fmt::format("  {:<10} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>11} {:>8}", "", "weights", "gradients",
                              "optimizer", "rotating", "together", "scratch", "activations", "total"));
  for (const SchemePlan& scheme : plan.schemes) {
    if (!is_ours(scheme.scheme)) continue;
    const StateMemory& state = scheme.state;
    const std::string fits = !scheme.fits ? "" : *scheme.fits ? "  fits" : "  does not fit";
    lines.push_back(fmt::format("{} {:<10} {:>8.2f} {:>9.2f} {:>9.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>11.2f} {:>8.2f}{}",
                                scheme.scheme == plan.scheme ? '*' : ' ', name_of(scheme.scheme),
                                in_units(state.weights), in_units(state.gradients), in_units(state.optimizer),
                                in_units(state.rotating_weights + state.rotating_gradients), in_units(state.state()),
                                in_units(state.scratch), in_units(plan.activations.total()),
                                in_units(scheme.total_bytes), fits));
  }
  const ActivationMemory& kept = plan.activations;
  std::string of_these = fmt::format(
      "  activations: blocks {:.2f}, statistics {:.2f}, embedding and final norm {:.2f}, "
      "logits {:.2f}",
      in_units(kept.blocks), in_units(kept.statistics), in_units(kept.embedding), in_units(kept.logits));
  if (kept.logits < kept.whole_logits) {
    of_these += fmt::format(" in chunks ({:.2f} whole, activations then {:.1f})", in_units(kept.whole_logits),
                            in_units(kept.total() - kept.logits + kept.whole_logits));
  }
  if (kept.recomputed > 0) of_these += fmt::format(", a block computed again {:.2f}", in_units(kept.recomputed));
  lines.push_back(of_these);
  if (plan.largest_micro_size) {
    lines.push_back(fmt::format("  the largest batch.micro_size that fits: {}", grouped(*plan.largest_micro_size)));
  }
}

void add_traffic(std::vector<std::string>& lines, const RunPlan& plan) {
  const auto giga = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  lines.push_back(
      "sent in a step, GB: a rank inside its node and out of it, a node (by the formulas, which move every unit every "
      "time; a flat ring)");
  for (const SchemePlan& scheme : plan.schemes) {
    if (scheme.scheme == Scheme::replicated) continue;
    const StepTraffic& sent = scheme.scheduled ? scheme.scheduled->traffic : scheme.traffic;
    std::string line =
        fmt::format("{} {:<10} {:>8.3f} {:>8.3f} {:>8.2f} ({:.2f}; {:.2f})", scheme.scheme == plan.scheme ? '*' : ' ',
                    name_of(scheme.scheme), giga(sent.rank_inner), giga(sent.rank_outer), giga(sent.node),
                    giga(scheme.traffic.node), giga(scheme.traffic.node_flat));
    if (scheme.step_s) {
      const double step_s = scheme.scheduled ? *scheme.scheduled->step_s : *scheme.step_s,
                   rate = plan.positions_per_s(step_s);
      line += fmt::format("; {:.3f} s a step", step_s);
      if (scheme.scheduled) {
        line += fmt::format(" ({:.3f} by the formulas), {:.3f} of it waiting", *scheme.step_s,
                            *scheme.scheduled->exposed_s);
      }
      line += fmt::format(", {:.0f} {}/s a GPU, {:.0f} TFLOP/s causal (MFU {:.1f} %), {:.0f} full", rate,
                          plan.position_name, rate * plan.flops.causal / 1e12,
                          100 * rate * plan.flops.causal / plan.target.gpu->peak_flops, rate * plan.flops.full / 1e12);
    }
    lines.push_back(line);
  }
  if (plan.chosen().step_s && plan.steps) {
    const SchemePlan& chosen = plan.chosen();
    const double scheduled_s = chosen.scheduled ? *chosen.scheduled->step_s : *chosen.step_s;
    lines.push_back(fmt::format("the run: {:.1f} h predicted ({:.1f} h by the formulas)",
                                *plan.steps * scheduled_s / 3600, *plan.steps * *chosen.step_s / 3600));
  }
}

void add_layouts(std::vector<std::string>& lines, const RunPlan& plan) {
  if (plan.layouts.size() < 2) return;
  const Unit unit = unit_for(plan.chosen().total_bytes);
  lines.push_back(fmt::format("{} on other numbers of nodes", name_of(plan.scheme)));
  for (const LayoutPlan& row : plan.layouts) {
    lines.push_back(fmt::format(
        "  {:>4} nodes, {:>4} ranks, accumulation {:>3}{}: {:.1f} {}, {}, {:.3f} s a step", row.nodes, row.ranks,
        row.accumulation, row.idle_share > 0 ? fmt::format(" ({:.1f} % idle)", 100 * row.idle_share) : "",
        static_cast<double>(row.total_bytes) / unit.bytes, unit.name, row.fits ? "fits" : "does not fit", row.step_s));
  }
}

json::value value_of(const std::optional<double>& value) { return value ? json::value(*value) : json::value(nullptr); }

json::object json_of(const RunPlan& plan, const SchemePlan& scheme) {
  json::object object{{"weights_bytes", scheme.state.weights},
                      {"gradients_bytes", scheme.state.gradients},
                      {"optimizer_bytes", scheme.state.optimizer},
                      {"rotating_weights_bytes", scheme.state.rotating_weights},
                      {"rotating_gradients_bytes", scheme.state.rotating_gradients},
                      {"state_bytes", scheme.state.state()},
                      {"scratch_bytes", scheme.state.scratch},
                      {"total_bytes", scheme.total_bytes},
                      {"fits", scheme.fits ? json::value(*scheme.fits) : json::value(nullptr)},
                      {"sent_inner_bytes", scheme.traffic.rank_inner},
                      {"sent_outer_bytes", scheme.traffic.rank_outer},
                      {"node_bytes", scheme.traffic.node},
                      {"node_flat_bytes", scheme.traffic.node_flat},
                      {"step_s", value_of(scheme.step_s)},
                      {"flat_step_s", value_of(scheme.flat_step_s)}};
  if (scheme.scheduled) {
    const Scheduled& scheduled = *scheme.scheduled;
    object["scheduled"] = json::object{{"sent_inner_bytes", scheduled.traffic.rank_inner},
                                       {"sent_outer_bytes", scheduled.traffic.rank_outer},
                                       {"node_bytes", scheduled.traffic.node},
                                       {"step_s", value_of(scheduled.step_s)},
                                       {"exposed_s", value_of(scheduled.exposed_s)}};
  }
  if (!scheme.step_s) return object;
  const double rate = plan.positions_per_s(*scheme.step_s), peak = plan.target.gpu->peak_flops;
  object["positions_per_s_per_gpu"] = rate;
  object["flat_positions_per_s_per_gpu"] = plan.positions_per_s(*scheme.flat_step_s);
  object["causal_flops_per_s_per_gpu"] = rate * plan.flops.causal;
  object["full_flops_per_s_per_gpu"] = rate * plan.flops.full;
  object["mfu"] = rate * plan.flops.causal / peak;
  object["mfu_full"] = rate * plan.flops.full / peak;
  return object;
}

}  // namespace

std::vector<std::string> lines_of(const RunPlan& plan, const RunConfig& config,
                                  const std::vector<std::string>& formats) {
  std::vector<std::string> lines;
  const data::StepSizes& sizes = plan.sizes;
  const int world = plan.target.layout.world();
  lines.push_back(fmt::format("{} parameters ({} with padding){}{}", grouped(plan.spaces.parameters),
                              grouped(plan.spaces.padded), formats.empty() ? "" : "; exportable as ",
                              fmt::join(formats, ", ")));
  const bool examples = config.batch.unit == data::BatchUnit::examples;
  lines.push_back(
      fmt::format("FLOPs of forward and backward: {:.4g} G a position of {} (causal; pairs counted one by one {:.5g} "
                  "G; full matrix "
                  "{:.4g} G)",
                  plan.flops.causal / 1e9, plan.position_name, plan.exact_flops / 1e9, plan.flops.full / 1e9));
  lines.push_back(fmt::format("a step: {} {} = {} micro-batches of {} on {} ranks, accumulation {}{}",
                              grouped(sizes.global_size), examples ? "examples" : "padded_tokens", sizes.micro_batches,
                              grouped(sizes.micro_size), world, sizes.accumulation,
                              sizes.idle_share > 0 ? fmt::format(", {:.1f} % idle", 100 * sizes.idle_share) : ""));
  std::string length = fmt::format("length {}; {} {} a step", config.schedule.length.text(),
                                   grouped(plan.positions_per_step), plan.position_name);
  if (plan.positions_in_all) length += fmt::format(", {} in all", grouped(*plan.positions_in_all));
  lines.push_back(length);
  std::string rates = "learning rate";
  for (const auto& [at, lr] : plan.learning_rates) rates += fmt::format("  {:.4g} at {:.6g}", lr, at);
  lines.push_back(rates);
  add_memory(lines, plan);
  add_traffic(lines, plan);
  add_layouts(lines, plan);
  const Unit unit = unit_for(plan.checkpoint_bytes);
  std::string disk = fmt::format("disk: {:.1f} {} a checkpoint, {} kept, one being written, and one at each export",
                                 static_cast<double>(plan.checkpoint_bytes) / unit.bytes, unit.name,
                                 config.checkpoint.max_checkpoints);
  if (plan.disk_bytes) disk += fmt::format(": {:.1f} GiB in all", static_cast<double>(*plan.disk_bytes) / kGib);
  lines.push_back(disk);
  const Unit copy = unit_for(plan.copy_bytes);
  lines.push_back(fmt::format("host memory: {:.1f} {} a rank for the copy that checkpoints are written from",
                              static_cast<double>(plan.copy_bytes) / copy.bytes, copy.name));
  return lines;
}

std::vector<std::string> warnings_of(const RunPlan& plan) {
  std::vector<std::string> warnings;
  const data::StepSizes& sizes = plan.sizes;
  if (sizes.idle_share > 0) {
    const std::int64_t world = plan.target.layout.world(), places = sizes.accumulation * world;
    std::string remedy = fmt::format("global_size {} leaves none", grouped(sizes.micro_size * places));
    if (sizes.accumulation > 1) {
      remedy = fmt::format("global_size {} or {} leaves none", grouped(sizes.micro_size * (places - world)),
                           grouped(sizes.micro_size * places));
    }
    warnings.push_back(fmt::format("{:.1f} % of the ranks' time is idle: {} micro-batches for {} places ({})",
                                   100 * sizes.idle_share, sizes.micro_batches, places, remedy));
  }
  if (!plan.cure.empty()) warnings.push_back(fmt::format("does not fit; the shortest cure: {}", plan.cure));
  return warnings;
}

std::string memory_line(const RunPlan& plan, std::int64_t state_bytes, std::int64_t rest_bytes) {
  const Unit unit = unit_for(plan.chosen().total_bytes);
  const auto in_units = [&](auto bytes) { return static_cast<double>(bytes) / unit.bytes; };
  return fmt::format(
      "memory of the fullest rank, {}: {:.2f} state and buffers, planned {:.2f}; {:.2f} at most on top, "
      "planned {:.2f} of activations",
      unit.name, in_units(state_bytes), in_units(plan.chosen().state.state()), in_units(rest_bytes),
      in_units(plan.activations.total()));
}

json::object json_of(const RunPlan& plan) {
  json::array rates, layouts;
  for (const auto& [at, lr] : plan.learning_rates) rates.push_back(json::array{at, lr});
  for (const LayoutPlan& row : plan.layouts) {
    layouts.push_back(json::object{{"nodes", row.nodes},
                                   {"ranks", row.ranks},
                                   {"accumulation", row.accumulation},
                                   {"idle_share", row.idle_share},
                                   {"total_bytes", row.total_bytes},
                                   {"fits", row.fits},
                                   {"step_s", row.step_s}});
  }
  json::object schemes;
  for (const SchemePlan& scheme : plan.schemes) schemes[name_of(scheme.scheme)] = json_of(plan, scheme);
  const ActivationMemory& kept = plan.activations;
  const SchemePlan& chosen = plan.chosen();
  return {
      {"parameters", plan.spaces.parameters},
      {"padded_parameters", plan.spaces.padded},
      {"ranks", plan.target.layout.world()},
      {"nodes", plan.target.layout.nodes()},
      {"gpu", plan.target.gpu != nullptr ? json::value(plan.target.gpu->name) : json::value(nullptr)},
      {"capacity_bytes",
       plan.target.gpu != nullptr ? json::value(capacity_bytes(*plan.target.gpu)) : json::value(nullptr)},
      {"flops_per_position", {{"causal", plan.flops.causal}, {"full", plan.flops.full}, {"exact", plan.exact_flops}}},
      {"position", plan.position_name},
      {"global_size", plan.sizes.global_size},
      {"micro_size", plan.sizes.micro_size},
      {"micro_batches", plan.sizes.micro_batches},
      {"accumulation", plan.sizes.accumulation},
      {"idle_share", plan.sizes.idle_share},
      {"positions_per_step", plan.positions_per_step},
      {"steps", value_of(plan.steps)},
      {"positions_in_all", value_of(plan.positions_in_all)},
      {"learning_rates", std::move(rates)},
      {"activations",
       {{"blocks_bytes", kept.blocks},
        {"recomputed_bytes", kept.recomputed},
        {"statistics_bytes", kept.statistics},
        {"embedding_bytes", kept.embedding},
        {"logits_bytes", kept.logits},
        {"whole_logits_bytes", kept.whole_logits},
        {"total_bytes", kept.total()}}},
      {"scheme", name_of(plan.scheme)},
      {"schemes", std::move(schemes)},
      {"fits", chosen.fits ? json::value(*chosen.fits) : json::value(nullptr)},
      {"warnings", json::value_from(warnings_of(plan))},
      {"largest_micro_size", plan.largest_micro_size ? json::value(*plan.largest_micro_size) : json::value(nullptr)},
      {"cure", plan.cure.empty() ? json::value(nullptr) : json::value(plan.cure)},
      {"layouts", std::move(layouts)},
      {"run_s", chosen.step_s && plan.steps ? json::value(*chosen.step_s * *plan.steps) : json::value(nullptr)},
      {"checkpoint_bytes", plan.checkpoint_bytes},
      {"copy_bytes", plan.copy_bytes},
      {"disk_bytes", plan.disk_bytes ? json::value(*plan.disk_bytes) : json::value(nullptr)}};
}

}  // namespace argosy::plan
