#include "data/batch_plan.hpp"

#include <algorithm>
#include <tuple>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::data {
namespace {

constexpr std::uint64_t step_shuffle = 0x53544550;  // names the stream of random numbers

std::int64_t width(const BatchPlanSettings& settings, std::uint32_t length) {
  return (length + settings.width_multiple - 1) / settings.width_multiple * settings.width_multiple;
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

BatchPlan::BatchPlan(const BatchPlanSettings& settings, std::span<const Lengths> lengths, const PoolKey& key) {
  struct Keyed {
    Lengths lengths;
    std::uint32_t example;
  };
  std::vector<Keyed> sorted;
  sorted.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (fits(settings, lengths[i]))
      sorted.push_back({lengths[i], narrow<std::uint32_t>(i)});
    else
      ++oversized_;
  }
  std::sort(sorted.begin(), sorted.end(), [](const Keyed& a, const Keyed& b) {
    const auto by = [](const Keyed& k) {
      return std::tuple{std::max(k.lengths.source, k.lengths.target), k.lengths.target, k.example};
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
      if (size > settings.micro_size) piece = nullptr;
    }
    if (piece == nullptr) piece = &pieces_.emplace_back();
    examples_.push_back(next.example);  // within what is reserved: spans stay valid
    piece->examples = std::span{examples_}.last(piece->examples.size() + 1);
    piece->source_width = std::max(piece->source_width, source);
    piece->target_width = std::max(piece->target_width, target);
    piece->src_tokens += next.lengths.source;
    piece->tgt_tokens += next.lengths.target;
  }

  for (std::size_t i = 0; i < pieces_.size(); i += static_cast<std::size_t>(settings.micro_batches)) {
    const std::size_t pieces = std::min(pieces_.size() - i, static_cast<std::size_t>(settings.micro_batches));
    steps_.push_back({narrow<std::uint32_t>(i), narrow<std::uint32_t>(pieces)});
  }
  if (steps_.empty()) return;
  RandomStream random{key.seed, step_shuffle, key.epoch, key.pool};
  for (std::size_t i = steps_.size() - 1; i > 0; --i) std::swap(steps_[i], steps_[random.below(i + 1)]);
}

}  // namespace argosy::data
