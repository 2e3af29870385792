#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

/// What the benchmarks of checkpoints and soups share.
namespace argosy::bench {

inline std::uint64_t number_of(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value > 0) return value;
  throw Error{Fault::usage, {.wanted = "a number above 0", .got = text, .where = "the command line"}};
}

/// Reads this rank's share of a file in pieces, each to where `place(size)` says. Returns its bytes.
template <class Place>
std::uint64_t read_share(const comm::Context& context, const Path& path, std::uint64_t piece_bytes,
                         const Place& place) {
  const File file = context.files.open(path);
  const auto rank = static_cast<std::uint64_t>(context.world.rank());
  const auto ranks = static_cast<std::uint64_t>(context.world.size());
  const std::uint64_t size = file.stat().size_bytes, begin = size * rank / ranks, end = size * (rank + 1) / ranks;
  for (std::uint64_t at = begin; at < end; at += piece_bytes) file.read_at(place(std::min(piece_bytes, end - at)), at);
  return end - begin;
}

/// What checkpoints of the benchmarks say of their model.
inline checkpoint::Sections sections() {
  checkpoint::Sections sections;
  sections.model = {{"arch", "bench"}};
  return sections;
}

inline void require_committed(const checkpoint::SaveReport& report) {
  if (!report.committed) throw Error{Fault::io, {.wanted = "a checkpoint", .got = report.why_not}};
}

/// A model's state, as large as asked for over all ranks: the weights, or with them the two moments.
class State {
 public:
  State(std::uint64_t megabytes, const partition::Layout& layout, int rank, std::int64_t units = 8,
        std::size_t tensors = 3)
      : tensors_(tensors) {
    constexpr std::int64_t width = 1000;
    const auto elements = static_cast<std::int64_t>(megabytes * 1'000'000 / sizeof(float) / tensors);
    spaces_.reserve(static_cast<std::size_t>(units));
    for (std::int64_t unit = 0; unit < units; ++unit) {
      spaces_.emplace_back(
          std::vector<partition::ParamSpec>{{fmt::format("block.{}/weight", unit), {elements / units / width, width}},
                                            {fmt::format("block.{}/norm", unit), {width}, false}},
          layout);
      for (auto& tensor : tensors_)
        tensor.emplace_back(static_cast<std::size_t>(spaces_.back().owned_size(rank)), 0.0F);
    }
  }
  void fill(std::uint64_t seed) {
    std::uint64_t state = (seed + 1) * 0x9E3779B97F4A7C15U;
    for (auto& tensor : tensors_)
      for (std::vector<float>& values : tensor)
        for (float& value : values) {  // in [1, 2): xorshift in the mantissa
          state ^= state << 13, state ^= state >> 7, state ^= state << 17;
          value = std::bit_cast<float>(0x3F800000U | static_cast<std::uint32_t>(state >> 41));
        }
  }
  [[nodiscard]] std::vector<checkpoint::UnitState> units() {
    std::vector<checkpoint::UnitState> units;
    constexpr const char* names[] = {"master", "exp_avg", "exp_avg_sq"};
    for (std::size_t u = 0; u < spaces_.size(); ++u) {
      units.push_back({fmt::format("block.{}", u), &spaces_[u], {}});
      for (std::size_t t = 0; t < tensors_.size(); ++t)
        units.back().tensors.push_back({{names[t]}, std::as_writable_bytes(std::span{tensors_[t][u]})});
    }
    return units;
  }
  /// In the order in which a shard holds them.
  [[nodiscard]] std::vector<Bytes> payload() const {
    std::vector<Bytes> payload;
    for (std::size_t u = 0; u < spaces_.size(); ++u)
      for (const auto& tensor : tensors_) payload.push_back(std::as_bytes(std::span{tensor[u]}));
    return payload;
  }
  /// Takes over what `other` holds, as training's state is copied for a writer.
  void copy(const State& other) {
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      for (std::size_t u = 0; u < spaces_.size(); ++u) std::ranges::copy(other.tensors_[t][u], tensors_[t][u].begin());
  }
  [[nodiscard]] std::int64_t size_bytes() const {
    std::int64_t bytes = 0;
    for (const Bytes piece : payload()) bytes += static_cast<std::int64_t>(piece.size());
    return bytes;
  }

 private:
  std::vector<partition::FlatSpace> spaces_;
  std::vector<std::vector<std::vector<float>>> tensors_;  // by tensor, unit
};

}  // namespace argosy::bench
