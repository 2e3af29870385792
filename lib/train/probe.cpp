#include "train/probe.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "data/batcher.hpp"
#include "kernels/tensor_memory.hpp"
#include "plan/micro_size.hpp"
#include "plan/placement_plan.hpp"
#include "train/process.hpp"
#include "train/run_parts.hpp"
#include "train/runner.hpp"
#include "train/start_agreement.hpp"
#include "train/threads.hpp"

namespace argosy::train {
namespace {

double in_mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Live pieces in turn, EOS at the end.
std::vector<std::int32_t> made_up_ids(const spec::Vocabulary& vocabulary, std::int64_t size) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i + 1 < size; ++i) ids.push_back(narrow<std::int32_t>(i % vocabulary.pieces));
  ids.push_back(narrow<std::int32_t>(vocabulary.eos));
  return ids;
}

data::Batch made_up_batch(const plan::FullRows& rows, const spec::Vocabulary& vocabulary) {
  const std::vector<std::int32_t> target = made_up_ids(vocabulary, rows.target_width);
  if (rows.source_width > 0) {
    const std::vector<std::int32_t> source = made_up_ids(vocabulary, rows.source_width);
    return data::batch_of_pairs(
        std::vector(static_cast<std::size_t>(rows.rows), data::PairIds{.source = source, .target = target}),
        vocabulary);
  }
  data::LmBatcher batcher(vocabulary, rows.rows, rows.target_width);
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    batcher.begin_row();
    batcher.add({.ids = target, .loss = {}, .size = rows.target_width}, 0, rows.target_width);
  }
  return batcher.take();
}

constexpr int steps_of_a_size = 2;  // workspaces exist after the first

/// Of the fullest rank.
struct Measured {
  data::StepSizes sizes;
  std::int64_t peak_bytes = 0, forecast_bytes = 0;
};

class Probe {
 public:
  /// **Collective.**
  Probe(comm::Context& context, const plan::RunConfig& config, std::int64_t vocab_live)
      : context_(context), config_(config), spec_(plan::spec_of(config, vocab_live)), run_(context, config) {
    run_.device = choose_device(config.device, context);
    const auto memory = least_memory(context, run_.device);
    if (!memory)
      throw_error(Fault::config, "--probe-memory", "a rank whose memory is known", "an unknown one",
                  "set ARGOSY_RANK_MEMORY to the bytes that a rank may use");
    memory_bytes_ = *memory;
    target_ =
        plan::placed({.layout = context.topology.layout(), .gpu = planned_gpu(run_.device)}, config, spec_, nullptr);
    run_.placement = target_.placement;
    const int world = context.topology.world_size();
    global_size_ = config.batch.micro_size.is_auto ? config.batch.global_size.value()
                                                   : data::resolve_sizes(config.batch, world).global_size;
    legal_ = plan::legal_micro_sizes(config, global_size_, world);
    if (legal_.empty()) legal_.push_back(global_size_);  // resolve_sizes says what is wrong
  }

  /// The largest size that fits. **Collective.**
  Measured run() {
    if (const Measured first = planned(0); !fits(first.forecast_bytes))
      plan::throw_none_fits(config_, legal_.front(), first.forecast_bytes, memory_bytes_);
    run_.make_model(spec_.architecture.vocabulary.pieces);
    run_.buffers->initialise(config_.seed);
    std::size_t next = 0, too_large = legal_.size();
    while (next < too_large) {
      if (!try_size(next)) {
        too_large = next;
        break;
      }
      const auto doubled = std::ranges::lower_bound(legal_, 2 * legal_[next]) - legal_.begin();
      const std::size_t largest = legal_.size() - 1;
      next = next == largest ? legal_.size() : std::min(static_cast<std::size_t>(doubled), largest);
    }
    if (fitting_.empty()) plan::throw_none_fits(config_, legal_.front(), smallest_peak_bytes_, memory_bytes_);
    std::size_t low = static_cast<std::size_t>(std::ranges::find(legal_, best().sizes.micro_size) - legal_.begin());
    while (too_large - low > 1) {
      const std::size_t middle = low + (too_large - low) / 2;
      (try_size(middle) ? low : too_large) = middle;
    }
    return best();
  }
  [[nodiscard]] std::int64_t memory_bytes() const { return memory_bytes_; }

 private:
  [[nodiscard]] bool fits(std::int64_t bytes) const {
    return static_cast<double>(bytes) <= plan::filled_share * static_cast<double>(memory_bytes_);
  }
  [[nodiscard]] const Measured& best() const { return fitting_.back(); }

  [[nodiscard]] Measured planned(std::size_t index) const {
    data::BatchConfig batch = config_.batch;
    batch.global_size = global_size_;
    batch.micro_size = legal_[index];
    batch.accumulation.reset();
    Measured size{.sizes = data::resolve_sizes(batch, target_.layout.world())};
    size.forecast_bytes = plan::full_length_bytes(config_, spec_, target_, size.sizes);
    return size;
  }

  /// What a size will take, from its forecast and from what smaller ones took beside theirs.
  [[nodiscard]] std::int64_t expected_bytes(const Measured& size) const {
    if (fitting_.empty()) return size.forecast_bytes;
    const double more = static_cast<double>(size.forecast_bytes - best().forecast_bytes);
    double slope = 1;
    if (fitting_.size() > 1) {
      const Measured& before = fitting_[fitting_.size() - 2];
      slope = static_cast<double>(best().peak_bytes - before.peak_bytes) /
              static_cast<double>(std::max<std::int64_t>(1, best().forecast_bytes - before.forecast_bytes));
    }
    return best().peak_bytes + static_cast<std::int64_t>(std::max(slope, 0.0) * more);
  }

  /// Whether it fits. A size that will not is not tried. **Collective.**
  bool try_size(std::size_t index) {
    Measured size = planned(index);
    if (const std::int64_t expected = expected_bytes(size); !fits(expected)) {
      context_.log.info("batch.micro_size {}: not tried, since it would need about {:.1f} MiB per rank",
                        size.sizes.micro_size, in_mebibytes(expected));
      return false;
    }
    size.peak_bytes = peak_of_steps(size.sizes);
    if (index == 0) smallest_peak_bytes_ = size.peak_bytes;
    const bool fit = fits(size.peak_bytes);
    context_.log.info("batch.micro_size {}, accumulation {}: measured {:.1f} MiB per rank, forecast {:.1f} MiB: {}",
                      size.sizes.micro_size, size.sizes.accumulation, in_mebibytes(size.peak_bytes),
                      in_mebibytes(size.forecast_bytes), fit ? "fits" : "does not fit");
    if (fit) fitting_.push_back(size);
    return fit;
  }

  /// **Collective.**
  std::int64_t peak_of_steps(const data::StepSizes& sizes) {
    // Depth first, the second micro-batch meets what the first has left, and later ones are like it.
    const bool together = config_.sharding.accumulation_order == plan::AccumulationOrder::breadth_first;
    plan::PlanChoices choices = run_.choices;
    choices.micro_batches = together ? sizes.accumulation : std::min(2, sizes.accumulation);
    const spec::Vocabulary& vocabulary = spec_.architecture.vocabulary;
    data::StepBatches batches;
    for (int i = 0; i < choices.micro_batches; ++i) {
      batches.batches.push_back(
          made_up_batch(plan::full_rows(config_, spec_.architecture, sizes.micro_size), vocabulary));
      if (run_.placement.is_everywhere()) continue;
      const plan::SlotRoutes& slot = choices.slots.emplace_back(first_routes());
      batches.batches.back().route = narrow<std::uint32_t>(*slot.own);
    }
    choices.idle = run_.placement.absent(context_.topology.canonical_rank());
    batches.totals.tgt_tokens =
        batches.batches.front().tgt_tokens * choices.micro_batches * context_.topology.world_size();
    const plan::StepPlan steps =
        plan::plan_step(plan::plan_shape(spec_, target_.layout, optim::whole_units(config_.optimizer, spec_)), choices);
    const auto optimizer =
        optim::make_optimizer(config_.optimizer, plan::is_language_model(config_), plan::has_wide_master(config_));
    optim::SkipGuard guard({}, {});
    Runner runner(*run_.model, *run_.buffers, run_.groups(), *optimizer, optim::max_grad_norm_of(config_.optimizer),
                  guard, context_.clock, run_.device);
    kernels::reset_peak(run_.device);
    for (int i = 0; i < steps_of_a_size; ++i) {
      ++steps_;
      (void)runner.run(steps, batches,
                       {.step = steps_,
                        .updates = std::vector(spec_.components.size(), steps_),
                        .seed = config_.seed,
                        .loss = run_.loss,
                        .recompute = config_.sharding.recompute});
    }
    std::int64_t peak =
        kernels::memory_of(run_.device).peak_bytes + (run_.device.is_cpu() ? run_.host->size_bytes() : 0);
    context_.world.all_reduce(std::span{&peak, 1}, comm::Reduce::max);
    return peak;
  }

  /// Of a micro-batch where each rank computes the first of its routes.
  [[nodiscard]] plan::SlotRoutes first_routes() const {
    plan::SlotRoutes slot;
    for (int rank = 0; rank < context_.topology.world_size(); ++rank) {
      const auto first = std::ranges::find_if(run_.placement.routes, [&](const std::vector<int>& ranks) {
        return std::ranges::binary_search(ranks, rank);
      });
      const auto route = static_cast<std::size_t>(first - run_.placement.routes.begin());
      slot.all.insert(route);
      if (rank == context_.topology.canonical_rank()) slot.own = route;
    }
    return slot;
  }

  comm::Context& context_;
  const plan::RunConfig& config_;
  spec::ModelSpec spec_;
  RunParts run_;
  plan::PlanTarget target_;
  std::int64_t memory_bytes_ = 0, global_size_ = 0, steps_ = 0;
  std::vector<std::int64_t> legal_;
  std::vector<Measured> fitting_;  // by size
  std::int64_t smallest_peak_bytes_ = 0;
};

}  // namespace

boost::json::object probe_memory(comm::Context& context, const plan::RunConfig& config, std::int64_t vocab_live) {
  require_same_start(context.world, config, {{"--probe-memory", true}});
  plan::require_trainable(config);
  if (config.lora && !config.lora->rank)
    throw_error(Fault::config, "lora.rank", "a number with --probe-memory", "auto", "set lora.rank to the rank to try");
  context.world.configure(config.comm);
  kernels::keep_tensor_memory();
  (void)set_up_threads(context);
  Probe probe{context, config, vocab_live};
  Measured best;
  comm::ends_in_time(context, [&] { best = probe.run(); });
  return {{"micro_size", best.sizes.micro_size},
          {"accumulation", best.sizes.accumulation},
          {"peak_bytes", best.peak_bytes},
          {"forecast_bytes", best.forecast_bytes},
          {"memory_bytes", probe.memory_bytes()}};
}

}  // namespace argosy::train
