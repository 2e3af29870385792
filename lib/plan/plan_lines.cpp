#include "plan/plan_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "plan/sharing.hpp"

namespace argosy::plan {

namespace {

constexpr double gib = 1 << 30, mib = 1 << 20;
constexpr const char* unit_names[] = {"step", "tgt_token", "epoch"};  // by config::Period::Unit

std::string grouped(double value) {
  std::string text = fmt::format("{:.0f}", value);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}
std::string grouped(std::int64_t value) { return grouped(static_cast<double>(value)); }

/// Small models are planned in MiB.
struct Unit {
  double bytes;
  const char* name;
  [[nodiscard]] double of(auto size_bytes) const { return static_cast<double>(size_bytes) / bytes; }
};
Unit unit_for(std::int64_t size_bytes) {
  return static_cast<double>(size_bytes) >= gib ? Unit{gib, "GiB"} : Unit{mib, "MiB"};
}

void add_model(std::vector<std::string>& lines, const RunPlan& plan, const RunConfig& config,
               const std::vector<std::string>& formats) {
  const data::StepSizes& sizes = plan.sizes;
  lines.push_back(fmt::format("model: {} parameters ({} with padding){}{}", grouped(plan.spaces.parameters),
                              grouped(plan.spaces.padded), formats.empty() ? "" : "; exportable as ",
                              fmt::join(formats, ", ")));
  if (!plan.components.empty()) lines.push_back(plan.components);
  for (const OtherPlacement& other : plan.other_placements)
    lines.push_back(
        fmt::format("  with placement {}: {:.2f} times as long a step, {:.2f} times the memory of the fullest rank, "
                    "{:.1f} % idle (rough)",
                    other.name, other.step_ratio, other.bytes_ratio, 100 * other.idle_share));
  if (const auto [trained, all] = plan.parameters; trained < all)
    lines.push_back(fmt::format("trained: {} parameters ({:.2g} %)", grouped(trained),
                                100 * static_cast<double>(trained) / static_cast<double>(all)));
  if (config.lora)
    lines.back() +=
        fmt::format("; adapters of rank {}, times {:.4g}", *config.lora->rank, spec::adapter_scale(*config.lora));
  lines.push_back(
      fmt::format("work per position ({}): {:.4g} GFLOP, forward and backward, with causal attention ({:.5g} by an "
                  "exact count of its pairs; {:.4g} as if it were neither causal nor windowed)",
                  plan.position_name, plan.flops.causal / 1e9, plan.exact_flops / 1e9, plan.flops.full / 1e9));
  const bool examples = config.batch.unit == data::BatchUnit::examples;
  lines.push_back(fmt::format("a step: {} {} = {} micro-batches of {} on {} ranks, accumulation {}{}",
                              grouped(sizes.global_size), examples ? "examples" : "padded_tokens", sizes.micro_batches,
                              grouped(sizes.micro_size), plan.target.layout.world(), sizes.accumulation,
                              sizes.idle_share > 0 ? fmt::format(", {:.1f} % idle", 100 * sizes.idle_share) : ""));
  const auto [count, period] = config.schedule.length;
  const char* const unit = unit_names[static_cast<std::size_t>(period)];
  std::string length = fmt::format("length: {:.15g} {}{}; {} {} a step", count, unit, count == 1 ? "" : "s",
                                   grouped(plan.positions_per_step), plan.position_name);
  if (plan.positions_in_all) length += fmt::format(", {} in all", grouped(*plan.positions_in_all));
  lines.push_back(length);
  std::vector<std::string> rates;
  rates.reserve(plan.learning_rates.size());
  for (const auto& [at, lr] : plan.learning_rates) rates.push_back(fmt::format("{:.4g} at {} {:.6g}", lr, unit, at));
  lines.push_back(fmt::format("learning rate: {}", fmt::join(rates, ", ")));
  if (!plan.peak_line.empty()) lines.back() += "; " + plan.peak_line;
}

void add_data(std::vector<std::string>& lines, const RunPlan& plan, const RunConfig& config) {
  if (!plan.data) {
    lines.push_back(fmt::format(
        "data: no token shards of these corpora in {} yet; after preprocess, the plan says how often each is read",
        config.data.shards));
    return;
  }
  const DataPlan& data = *plan.data;
  lines.push_back(fmt::format("data: an epoch is about {} steps; the run has about {} steps and {:.3g} epochs",
                              grouped(std::ceil(data.steps_per_epoch)), grouped(std::ceil(data.steps)), data.epochs));
  for (const CorpusPlan& corpus : data.corpora)
    lines.push_back(fmt::format(
        "  {}: {} examples with {} tgt_tokens, {:.1f} % of the examples drawn, read {:.3g} times", corpus.name,
        grouped(corpus.examples), grouped(corpus.tgt_tokens), 100 * corpus.share, corpus.passes));
}

/// What the optimizer keeps, where it is not AdamW's two moments in fp32.
void add_optimizer(std::vector<std::string>& lines, const RunPlan& plan, const RunConfig& config) {
  if (plan.adamw_state_bytes == plan.spaces.state.owned) return;
  const Unit unit = unit_for(plan.adamw_state_bytes);
  lines.push_back(fmt::format("optimizer {}: {:.2f} {} of state on the fullest rank; AdamW in fp32: {:.2f} {}",
                              boost::describe::enum_to_string(config.optimizer.type, ""),
                              unit.of(plan.spaces.state.owned), unit.name, unit.of(plan.adamw_state_bytes), unit.name));
  if (config.optimizer.type == optim::OptimizerType::adafactor && config.optimizer.max_grad_norm.value_or(0) > 0)
    lines.back() += "; optimizer.max_grad_norm is set, although Adafactor usually trains with update_clip alone";
}

void add_activations(std::vector<std::string>& lines, const RunPlan& plan) {
  const ActivationMemory& kept = plan.activations;
  const Unit unit = unit_for(static_cast<std::int64_t>(kept.total()));
  std::string line = fmt::format(
      "activations of a micro-batch (estimate): {:.2f} {}: blocks {:.2f}, statistics {:.2f}, embedding and final norm "
      "{:.2f}, logits {:.2f}",
      unit.of(kept.total()), unit.name, unit.of(kept.blocks), unit.of(kept.statistics), unit.of(kept.embedding),
      unit.of(kept.logits));
  if (kept.logits < kept.whole_logits) {
    line += fmt::format(" in chunks (whole {:.2f}, activations then {:.1f})", unit.of(kept.whole_logits),
                        unit.of(kept.total() - kept.logits - kept.attention +
                                std::max(kept.whole_logits, kept.logits + kept.attention)));
  }
  if (kept.recomputed > 0) line += fmt::format(", a block computed again {:.2f}", unit.of(kept.recomputed));
  if (kept.attention > 0) line += fmt::format(", attention's backward pass {:.2f}", unit.of(kept.attention));
  lines.push_back(line);
  if (plan.target.gpu == nullptr) return;
  const std::int64_t capacity = capacity_bytes(*plan.target.gpu);
  const std::int64_t size = *plan.largest_micro_size;
  const std::string fitting = "the largest batch.micro_size that fits is " + grouped(size);
  lines.push_back(fmt::format("memory of a GPU: {} has {:.1f} GiB for a rank, after its CUDA context; {}",
                              plan.target.gpu->name, static_cast<double>(capacity) / gib,
                              size > 0 ? fitting : "no batch.micro_size fits"));
  if (const std::optional<PresetPlan>& other = plan.largest_preset) {
    const auto parameters = static_cast<double>(other->parameters);
    const bool many = parameters >= 1e9;
    lines.push_back(fmt::format(
        "the largest model.preset that fits with these settings: {}, {:.3g} {} parameters, {:.1f} GiB", other->preset,
        parameters / (many ? 1e9 : 1e6), many ? "G" : "M", static_cast<double>(other->total_bytes) / gib));
  }
}

/// Whether times are those of rates that this code has not been seen to reach.
bool has_bounds(const RunPlan& plan) {
  if (plan.target.gpu == nullptr || plan.target.gpu_positions_per_s) return false;
  const auto rates = rates_of(*plan.target.gpu);
  return std::ranges::any_of(rates, [](const NamedRate& one) { return !one.rate.is_measured; });
}

void add_rates(std::vector<std::string>& lines, const RunPlan& plan) {
  if (!has_bounds(plan)) return;
  std::vector<std::string> measured, bounds;
  for (const NamedRate& one : rates_of(*plan.target.gpu))
    (one.rate.is_measured ? measured : bounds)
        .push_back(fmt::format("{} {:.4g} {}", one.name, one.rate / 1e12, one.unit));
  lines.push_back(fmt::format(
      "rates of a GPU, measured with this code on {}: {}; not measured, but bounds: {}; so times are at least, and "
      "speeds at most, those below (--gpu-rate takes a measured speed)",
      plan.target.gpu->name, measured.empty() ? "none" : fmt::format("{}", fmt::join(measured, ", ")),
      fmt::join(bounds, ", ")));
}

/// A block of lines: what a scheme takes, each figure with its name.
void add_scheme(std::vector<std::string>& lines, const RunPlan& plan, const SchemePlan& scheme,
                const std::string& title) {
  const std::string fits = !scheme.fits ? "" : *scheme.fits ? ": fits" : ": does not fit";
  lines.push_back(fmt::format("scheme {}{}", title, fits));
  const Unit unit = unit_for(plan.chosen().total_bytes);
  const StateMemory& state = scheme.state;
  std::string memory = fmt::format("  memory of a rank  {:.2f} {}:", unit.of(scheme.total_bytes), unit.name);
  const std::pair<const char*, std::int64_t> parts[] = {
      {"weights", state.weights},
      {"gradients", state.gradients},
      {"optimizer", state.optimizer},
      {"buffers used in turns", state.rotating_weights + state.rotating_gradients},
      {"scratch", state.scratch}};
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) memory += fmt::format(" {} {:.2f} +", name, unit.of(bytes));
  }
  lines.push_back(memory + fmt::format(" activations {:.2f} (estimate)", unit.of(plan.activations.total())));
  if (state.translating > 0) {
    lines.back() += fmt::format(
        "; while a validation translates, {:.2f} for the weights of all ranks instead of scratch and activations",
        unit.of(state.translating));
  }
  const StepTraffic& sent = scheme.traffic;
  const auto giga = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  if (plan.target.layout.world() > 1) {
    lines.push_back(
        fmt::format("  sent in a step    by a rank {:.3f} GB inside its node, {:.3f} GB out of it; by a "
                    "node {:.2f} GB",
                    giga(sent.rank_inner), giga(sent.rank_outer), giga(sent.node)));
  }
  if (!scheme.step_s) return;
  const double rate = plan.positions_per_s(*scheme.step_s);
  const bool bound = has_bounds(plan);
  const char* const word = bound ? "bound" : "estimate";
  lines.push_back(fmt::format("  time of a step    {}{:.3f} s ({}), {:.3f} s of it waiting for the network",
                              bound ? "at least " : "", *scheme.step_s, word, *scheme.exposed_s));
  lines.push_back(
      fmt::format("  speed             {}{} {}/s a GPU ({}), {:.0f} TFLOP/s, MFU {:.1f} %; counted as if attention "
                  "were neither causal nor windowed: {:.0f} TFLOP/s",
                  bound ? "at most " : "", grouped(rate), plan.position_name, word, rate * plan.flops.causal / 1e12,
                  100 * rate * plan.flops.causal / plan.target.gpu->peak_flops, rate * plan.flops.full / 1e12));
}

void add_layouts(std::vector<std::string>& lines, const RunPlan& plan) {
  if (plan.layouts.size() < 2) return;
  const Unit unit = unit_for(plan.chosen().total_bytes);
  lines.push_back(fmt::format("scheme {} on other numbers of nodes ({})", plan.chosen().name,
                              has_bounds(plan) ? "estimates; times are bounds" : "estimates"));
  for (const LayoutPlan& row : plan.layouts) {
    lines.push_back(fmt::format(
        "  {:>4} nodes, {:>4} ranks, accumulation {:>3}{}: {:.1f} {} a rank, {}, {:.3f} s a step", row.nodes, row.ranks,
        row.accumulation, row.idle_share > 0 ? fmt::format(" ({:.1f} % idle)", 100 * row.idle_share) : "",
        unit.of(row.total_bytes), unit.name, row.fits ? "fits" : "does not fit", row.step_s));
  }
}

/// Ranks with the same figures in one line.
void add_ranks(std::vector<std::string>& lines, const RunPlan& plan) {
  if (plan.ranks.empty()) return;
  const Unit unit = unit_for(plan.chosen().state.state());
  const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  lines.push_back(fmt::format("each rank, scheme {}:", plan.chosen().name));
  std::vector<char> is_said(plan.ranks.size());
  for (std::size_t first = 0; first < plan.ranks.size(); ++first) {
    if (is_said[first]) continue;
    const RankPlan& own = plan.ranks[first];
    std::vector<int> alike;
    for (std::size_t rank = first; rank < plan.ranks.size(); ++rank) {
      if (plan.ranks[rank] != own) continue;
      is_said[rank] = 1;
      alike.push_back(narrow<int>(rank));
    }
    lines.push_back(fmt::format(
        "  {} {}: {:.2f} {} for state; sends {:.1f} MB in its node and {:.1f} MB out of it a step; "
        "{:.1f} % idle; {}",
        alike.size() == 1 ? "rank" : "ranks", text_of_ranks(alike), unit.of(own.state_bytes), unit.name,
        mega(own.sent_inner_bytes), mega(own.sent_outer_bytes), 100 * own.idle_share, fmt::join(own.tasks, ", ")));
  }
}

}  // namespace

std::vector<std::string> lines_of(const RunPlan& plan, const RunConfig& config, Schemes which,
                                  const std::vector<std::string>& formats) {
  std::vector<std::string> lines;
  add_model(lines, plan, config, formats);
  if (which == Schemes::all) lines.insert(lines.end(), plan.tasks.begin(), plan.tasks.end());
  if (which == Schemes::all) add_ranks(lines, plan);
  if (which == Schemes::all || plan.data) add_data(lines, plan, config);
  add_optimizer(lines, plan, config);
  add_activations(lines, plan);
  add_rates(lines, plan);
  add_scheme(lines, plan, plan.chosen(), plan.chosen().name + ", as configured");
  if (plan.chosen().step_s && plan.steps) {
    lines.push_back(fmt::format("  time of the run   {}{:.1f} h ({})", has_bounds(plan) ? "at least " : "",
                                *plan.steps * *plan.chosen().step_s / 3600, has_bounds(plan) ? "bound" : "estimate"));
  }
  if (which == Schemes::all) {
    for (const SchemePlan& scheme : plan.schemes) {
      if (&scheme != &plan.chosen()) add_scheme(lines, plan, scheme, scheme.name);
    }
    for (const SchemePlan& other : plan.comparisons)
      add_scheme(lines, plan, other, other.name + ", for comparison (Argosy does not run it)");
    add_layouts(lines, plan);
  }
  const Unit unit = unit_for(plan.checkpoint_bytes);
  std::string disk = fmt::format("disk: {:.1f} {} a checkpoint, {} kept, one being written, and one at each export",
                                 unit.of(plan.checkpoint_bytes), unit.name, config.checkpoint.max_checkpoints);
  if (plan.disk_bytes) disk += fmt::format(": {:.1f} GiB in all", static_cast<double>(*plan.disk_bytes) / gib);
  lines.push_back(disk);
  const Unit copy = unit_for(plan.copy_bytes);
  lines.push_back(fmt::format("host memory: {:.1f} {} a rank for the copy that checkpoints are written from",
                              copy.of(plan.copy_bytes), copy.name));
  return lines;
}

std::vector<std::string> warnings_of(const RunPlan& plan) {
  constexpr double usual_idle_share = 0.05;  // of placed tasks
  std::vector<std::string> warnings = plan.advice;
  const data::StepSizes& sizes = plan.sizes;
  const Placement& placement = plan.target.placement;
  if (const int groups = placement.most_groups_of_a_rank(); groups > usual_groups)
    warnings.push_back(
        fmt::format("a rank shares components with {} sets of ranks, each with communicators of its own; at most {} "
                    "are usual: let more tasks share a stack, or place tasks that share stacks on the same ranks",
                    groups, usual_groups));
  if (!placement.is_everywhere() && sizes.idle_share > usual_idle_share) {
    warnings.push_back(
        fmt::format("ranks are idle about {:.1f} % of the time, since the micro-batches of a step cannot be dealt "
                    "evenly to the ranks of their tasks: raise batch.global_size, or give tasks more ranks",
                    100 * sizes.idle_share));
  } else if (placement.is_everywhere() && sizes.idle_share > 0) {
    const std::int64_t world = plan.target.layout.world(), places = sizes.accumulation * world;
    std::string remedy = fmt::format("batch.global_size {} avoids that", grouped(sizes.micro_size * places));
    if (sizes.accumulation > 1) {
      remedy = fmt::format("batch.global_size {} or {} avoids that", grouped(sizes.micro_size * (places - world)),
                           grouped(sizes.micro_size * places));
    }
    warnings.push_back(fmt::format("ranks are idle {:.1f} % of the time: {} micro-batches a step for {} slots ({})",
                                   100 * sizes.idle_share, sizes.micro_batches, places, remedy));
  }
  const char* const claim = plan.cure != RunPlan::more_gpus
                                ? "; the cheapest change:"
                                : " with any batch.micro_size, sharding.recompute or sharding scheme that was tried;";
  if (!plan.cure.empty()) warnings.push_back(fmt::format("the run does not fit in memory{} {}", claim, plan.cure));
  return warnings;
}

std::string memory_line(const RunPlan& plan, std::int64_t state_bytes, std::int64_t rest_bytes) {
  const Unit unit = unit_for(plan.chosen().total_bytes);
  return fmt::format(
      "memory of the fullest rank: {:.2f} {} for state and buffers (planned: {:.2f}); at most {:.2f} {} for the rest "
      "(estimated activations: {:.2f})",
      unit.of(state_bytes), unit.name, unit.of(plan.chosen().state.state()), unit.of(rest_bytes), unit.name,
      unit.of(plan.activations.total()));
}

}  // namespace argosy::plan
