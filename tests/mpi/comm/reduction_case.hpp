#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "comm/collectives.hpp"
#include "core/bytes.hpp"
#include "support/mpi_test.hpp"

namespace argosy::comm::test {

/// Contribution of a canonical rank: [elements] values of wildly different sizes, so that another order shows in the
/// bits.
inline std::vector<float> contribution(int canonical_rank, std::int64_t elements) {
  std::minstd_rand random{static_cast<unsigned>(1 + canonical_rank)};
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    value = (static_cast<float>(bits & 0xffffffU) - 8388607.5F) * static_cast<float>(1U << (bits >> 27));
  }
  return values;
}

inline float rounded(float value) { return f32_from_bf16(bf16_from_f32(value)); }

/// What a wrong implementation would do.
enum class Variant { right, nodes_first, own_not_rounded };

/// Sum over nodes 0, 1, … of the sums over their local ranks 0, 1, …; contributions rounded to bf16 at the levels
/// asked. Every rank's contribution is a function of its canonical rank, so each rank forms the whole sum alone.
inline std::vector<float> nested_sum(const partition::FlatSpace& space, bool round_inner, bool round_outer,
                                     Variant variant = Variant::right) {
  const partition::Layout& layout = space.layout();
  const std::int64_t n = space.padded_size();
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < layout.world(); ++rank) values.push_back(contribution(rank, n));
  std::vector<float> sum(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int owner = space.owner(static_cast<int>(i / space.slice_size()));
    const int slot = static_cast<int>(i / space.slice_size()) / layout.nodes();
    const auto term = [&](int node, int local) {
      const int rank = layout.canonical_rank(node, local);
      const bool own = local == layout.slot_owner(node, slot);
      const float value = values[static_cast<std::size_t>(rank)][at];
      return round_inner && !(variant == Variant::own_not_rounded && own) ? rounded(value) : value;
    };
    if (variant == Variant::nodes_first) {  // local ranks outside, nodes inside
      bool first = true;
      for (int local = 0; local < layout.slots(); ++local)
        for (int node = 0; node < layout.nodes(); ++node) {
          if (local >= layout.node_size(node)) continue;
          sum[at] = first ? term(node, local) : sum[at] + term(node, local);
          first = false;
        }
      continue;
    }
    for (int node = 0; node < layout.nodes(); ++node) {
      float partial = term(node, 0);
      for (int local = 1; local < layout.node_size(node); ++local) partial += term(node, local);
      const bool own = node == layout.node_of(owner);
      if (round_outer && !(variant == Variant::own_not_rounded && own)) partial = rounded(partial);
      sum[at] = node == 0 ? partial : sum[at] + partial;
    }
  }
  return sum;
}

enum class Wire { fp32, bf16_flat, bf16_inner, bf16_outer, bf16_both };

inline std::string name_of(Wire wire) {
  constexpr std::array names{"fp32", "bf16_flat", "bf16_inner", "bf16_outer", "bf16_both"};
  return names[static_cast<std::size_t>(wire)];
}

using HierarchyAndWire = std::tuple<argosy::test::Hierarchy, Wire>;

/// Ranks spread in every way, with each of the wires.
inline auto every_hierarchy_with(const std::vector<Wire>& wires) {
  return testing::Combine(testing::ValuesIn(argosy::test::hierarchies()), testing::ValuesIn(wires));
}
inline std::string text_of(const testing::TestParamInfo<HierarchyAndWire>& info) {
  const auto [hierarchy, wire] = info.param;
  return argosy::test::name_of(hierarchy) + "_" + name_of(wire);
}

inline BufferView view_of(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), DType::f32};
}

/// A reduction of one unit on one topology: what goes in, what must come out.
struct Case {
  Case(argosy::test::Hierarchy hierarchy, Wire of_wire, std::int64_t width)
      : Case(argosy::test::topology(hierarchy), of_wire, width) {}
  Case(const Topology& of_topology, Wire of_wire, std::int64_t width)
      : topology(of_topology),
        wire(of_wire),
        space({{"w", {width}}}, topology.layout()),
        flat_dtype(wire == Wire::bf16_flat ? DType::bf16 : DType::f32),
        flat(static_cast<std::size_t>(space.padded_size()) * size_of(flat_dtype)),
        shard(static_cast<std::size_t>(space.owned_size(topology.canonical_rank())), -1.0F) {
    fill(test::contribution(topology.canonical_rank(), space.padded_size()));
  }

  /// Makes `values` what this rank contributes.
  void fill(const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t narrow = bf16_from_f32(values[i]);
      const void* const value = flat_dtype == DType::bf16 ? static_cast<const void*>(&narrow) : &values[i];
      std::memcpy(flat.data() + i * size_of(flat_dtype), value, size_of(flat_dtype));
    }
  }
  /// Makes all ranks contribute small integers, whose sum is the same in every order, in bf16 as well. Returns the sum.
  std::vector<float> fill_with_integers() {
    const auto term = [](int rank, std::int64_t i) { return static_cast<float>((i * 7 + rank * 13) % 61 - 30); };
    std::vector<float> mine, sum(static_cast<std::size_t>(space.padded_size()));
    for (std::int64_t i = 0; i < space.padded_size(); ++i) {
      mine.push_back(term(topology.canonical_rank(), i));
      for (int rank = 0; rank < topology.world_size(); ++rank) sum[static_cast<std::size_t>(i)] += term(rank, i);
    }
    fill(mine);
    return sum;
  }
  /// Fills the own slices with a byte that tells each from all others, which become zeros.
  void fill_own_slices() {
    std::fill(flat.begin(), flat.end(), std::byte{0});
    for (const int slice : space.owned_slices(topology.canonical_rank()))
      std::ranges::fill(bytes_of(slice), static_cast<std::byte>(slice + 1));
  }
  /// Whether a slice is as its owner has filled it.
  [[nodiscard]] bool holds(int slice) {
    return std::ranges::all_of(bytes_of(slice), [&](std::byte x) { return x == static_cast<std::byte>(slice + 1); });
  }
  [[nodiscard]] std::span<std::byte> bytes_of(int slice) {
    const auto size = static_cast<std::size_t>(space.slice_size()) * size_of(flat_dtype);
    return std::span{flat}.subspan(static_cast<std::size_t>(slice) * size, size);
  }
  /// The slices of the own slots, of all nodes.
  [[nodiscard]] BufferView own_slots() {
    const int nodes = topology.layout().nodes(),
              first = topology.layout().slots_of(topology.canonical_rank()).front() * nodes;
    return {bytes_of(first).data(), std::ssize(shard) * nodes, flat_dtype};
  }
  [[nodiscard]] CollectivesOptions options(Reduction reduction = Reduction::exact) const {
    CollectivesOptions chosen{.reduction = reduction};
    chosen.chunk_bytes = 1;  // the smallest pieces: several a slice
    if (wire == Wire::bf16_inner || wire == Wire::bf16_both) chosen.wire_inner = DType::bf16;
    if (wire == Wire::bf16_outer || wire == Wire::bf16_both) chosen.wire_outer = DType::bf16;
    return chosen;
  }
  /// The sum of all contributions as an exact reduction forms it.
  [[nodiscard]] std::vector<float> exact_sum(Variant variant = Variant::right) const {
    return nested_sum(space, rounds_inner(), rounds_outer(), variant);
  }
  /// Room for what a reduction inside the node leaves: the sums of all slices of the own slots.
  [[nodiscard]] std::vector<float> empty_slots() const {
    return std::vector<float>(shard.size() * static_cast<std::size_t>(topology.layout().nodes()));
  }
  /// What this rank sends for one reduction of the whole buffer.
  [[nodiscard]] Traffic::Bytes bytes_sent() const {
    return reduce_scatter_bytes(space, topology.canonical_rank(), rounds_inner() ? 2 : 4, rounds_outer() ? 2 : 4);
  }
  [[nodiscard]] bool rounds_inner() const {
    return wire == Wire::bf16_flat ||
           ((wire == Wire::bf16_inner || wire == Wire::bf16_both) && space.layout().slots() > 1);
  }
  [[nodiscard]] bool rounds_outer() const {
    return (wire == Wire::bf16_outer || wire == Wire::bf16_both) && space.layout().nodes() > 1;
  }
  [[nodiscard]] BufferView flat_view() { return {flat.data(), space.padded_size(), flat_dtype}; }
  [[nodiscard]] BufferView shard_view() { return view_of(shard); }
  /// The owned slices of a whole sum, end to end, as bits.
  [[nodiscard]] std::vector<std::uint32_t> owned_bits(const std::vector<float>& sum) const {
    std::vector<std::uint32_t> bits;
    for (const int slice : space.owned_slices(topology.canonical_rank()))
      for (std::int64_t i = 0; i < space.slice_size(); ++i)
        bits.push_back(std::bit_cast<std::uint32_t>(sum[static_cast<std::size_t>(space.slice_begin(slice) + i)]));
    return bits;
  }
  [[nodiscard]] std::vector<std::uint32_t> shard_bits() const {
    std::vector<std::uint32_t> bits;
    for (const float value : shard) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
  }
  /// Whether any rank's part of `sum` differs from what this rank holds. **Collective.**
  [[nodiscard]] bool differs_somewhere(const std::vector<float>& sum) const {
    return any_of(argosy::test::world(), owned_bits(sum) != shard_bits());
  }

  const Topology& topology;
  Wire wire;
  partition::FlatSpace space;
  DType flat_dtype;
  std::vector<std::byte> flat;
  std::vector<float> shard;
};

}  // namespace argosy::comm::test
