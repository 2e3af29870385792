#include "data/batch_plan.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::data {
namespace {

constexpr std::uint64_t step_shuffle = 0x53544550;  // names the stream of random numbers

std::int64_t width(const BatchPlanSettings& settings, std::uint32_t length) {
  return (length + settings.width_multiple - 1) / settings.width_multiple * settings.width_multiple;
}

/// A number without a common divisor with n, whose multiples modulo n are spread evenly over 0 … n - 1 however many of
/// them are taken.
std::size_t spreading_stride(std::size_t n) {
  constexpr double golden_ratio = 0.6180339887498949;
  auto stride = std::max<std::size_t>(1, static_cast<std::size_t>(golden_ratio * static_cast<double>(n)));
  while (std::gcd(stride, n) != 1) ++stride;
  return stride;
}

}  // namespace

bool fits(const BatchPlanSettings& settings, const Lengths& lengths) {
  return settings.unit == BatchUnit::examples ||
         width(settings, lengths.source) + width(settings, lengths.target) <= settings.micro_size;
}

int BatchPlan::micro_batches(std::int64_t step) const {
  return static_cast<int>(steps_.at(static_cast<std::size_t>(step)).pieces);
}

MicroBatch BatchPlan::micro_batch(std::int64_t step, int j) const {
  const Step& at = steps_.at(static_cast<std::size_t>(step));
  return j < static_cast<int>(at.pieces) ? pieces_[at.first_piece + static_cast<std::uint32_t>(j)] : MicroBatch{};
}

BatchPlan::BatchPlan(const BatchPlanSettings& settings, std::span<const Lengths> lengths, const PoolKey& key,
                     std::span<const std::uint32_t> routes) {
  ARGOSY_CHECK(routes.empty() || routes.size() == lengths.size(), "{} routes of {} examples", routes.size(),
               lengths.size());
  struct Keyed {
    Lengths lengths;
    std::uint32_t example, route;
  };
  std::vector<Keyed> sorted;
  sorted.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (fits(settings, lengths[i]))
      sorted.push_back({lengths[i], narrow<std::uint32_t>(i), routes.empty() ? 0 : routes[i]});
    else
      ++oversized_;
  }
  std::sort(sorted.begin(), sorted.end(), [](const Keyed& a, const Keyed& b) {
    const auto by = [](const Keyed& k) {
      // Within a longest side, rising and falling by turns: neighbours are then alike on both sides.
      const std::uint32_t longest = std::max(k.lengths.source, k.lengths.target);
      const std::int64_t difference = std::int64_t{k.lengths.target} - std::int64_t{k.lengths.source};
      return std::tuple{k.route, longest, longest % 2 == 0 ? difference : -difference, k.example};
    };
    return by(a) < by(b);
  });

  const bool by_rows = settings.unit == BatchUnit::examples;
  examples_.reserve(sorted.size());
  for (const Keyed& next : sorted) {
    const std::int64_t source = width(settings, next.lengths.source), target = width(settings, next.lengths.target);
    MicroBatch* piece = pieces_.empty() ? nullptr : &pieces_.back();
    if (piece != nullptr) {
      const std::int64_t rows = std::ssize(piece->examples) + 1;
      const std::int64_t size =
          by_rows ? rows : rows * (std::max(piece->source_width, source) + std::max(piece->target_width, target));
      if (size > settings.micro_size || next.route != piece->route) piece = nullptr;
    }
    if (piece == nullptr) piece = &pieces_.emplace_back();
    piece->route = next.route;
    examples_.push_back(next.example);  // within what is reserved: spans stay valid
    piece->examples = std::span{examples_}.last(piece->examples.size() + 1);
    piece->source_width = std::max(piece->source_width, source);
    piece->target_width = std::max(piece->target_width, target);
    piece->src_tokens += next.lengths.source;
    piece->tgt_tokens += next.lengths.target;
  }

  deal(static_cast<std::size_t>(settings.micro_batches));
  for (std::size_t i = 0; i < pieces_.size(); i += static_cast<std::size_t>(settings.micro_batches)) {
    const std::size_t pieces = std::min(pieces_.size() - i, static_cast<std::size_t>(settings.micro_batches));
    steps_.push_back({narrow<std::uint32_t>(i), narrow<std::uint32_t>(pieces)});
  }
  RandomStream{key.seed, step_shuffle, key.epoch, key.pool}.shuffle(steps_);
}

void BatchPlan::deal(std::size_t micro_batches) {
  const std::size_t count = pieces_.size(), full = count / micro_batches, rest = count % micro_batches;
  std::vector<MicroBatch> dealt(count);
  std::vector<std::size_t> next(full), own(full);  // of each full step: its next place in `dealt`; pieces of a route
  for (std::size_t s = 0; s < full; ++s) next[s] = s * micro_batches;
  std::size_t next_of_last = full * micro_batches, step = 0;
  const std::size_t stride = spreading_stride(full);
  for (std::size_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && pieces_[end].route == pieces_[begin].route) ++end;
    const std::size_t left = rest * end / count - rest * begin / count;  // for the last step, which is short
    if (full > 0) {
      // What full steps cannot have alike goes round all of them, route after route, so that each gets as much.
      const std::size_t pieces = end - begin - left;
      std::ranges::fill(own, pieces / full);
      for (std::size_t i = 0; i < pieces % full; ++i, step = (step + stride) % full) ++own[step];
    }
    std::size_t piece = begin;
    for (std::size_t s = 0; s < full; ++s)
      for (std::size_t i = 0; i < own[s]; ++i) dealt[next[s]++] = pieces_[piece++];
    while (piece < end) dealt[next_of_last++] = pieces_[piece++];
  }
  pieces_ = std::move(dealt);
}

}  // namespace argosy::data
