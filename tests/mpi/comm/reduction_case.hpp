#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "comm/collectives.hpp"
#include "mpi/comm/nested_sum.hpp"
#include "support/mpi_test.hpp"

namespace argosy::comm::test {

enum class Wire { fp32, bf16_flat, bf16_inner, bf16_outer, bf16_both };

inline std::string name_of(Wire wire) {
  constexpr std::array names{"fp32", "bf16_flat", "bf16_inner", "bf16_outer", "bf16_both"};
  return names[static_cast<std::size_t>(wire)];
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
    const std::vector<float> mine = test::contribution(topology.canonical_rank(), space.padded_size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const std::uint16_t narrow = bf16_from_f32(mine[i]);
      const void* const value = flat_dtype == DType::bf16 ? static_cast<const void*>(&narrow) : &mine[i];
      std::memcpy(flat.data() + i * size_of(flat_dtype), value, size_of(flat_dtype));
    }
  }

  [[nodiscard]] CollectivesOptions options() const {
    CollectivesOptions chosen;
    chosen.chunk_bytes = 1;  // the smallest pieces: several a slice
    if (wire == Wire::bf16_inner || wire == Wire::bf16_both) chosen.wire_inner = DType::bf16;
    if (wire == Wire::bf16_outer || wire == Wire::bf16_both) chosen.wire_outer = DType::bf16;
    return chosen;
  }
  [[nodiscard]] bool rounds_inner() const {
    return wire == Wire::bf16_flat ||
           ((wire == Wire::bf16_inner || wire == Wire::bf16_both) && space.layout().slots() > 1);
  }
  [[nodiscard]] bool rounds_outer() const {
    return (wire == Wire::bf16_outer || wire == Wire::bf16_both) && space.layout().nodes() > 1;
  }
  [[nodiscard]] BufferView flat_view() { return {flat.data(), space.padded_size(), flat_dtype}; }
  [[nodiscard]] BufferView shard_view() {
    return {reinterpret_cast<std::byte*>(shard.data()), static_cast<std::int64_t>(shard.size()), DType::f32};
  }
  /// The owned slices of a whole sum, end to end, as bits.
  [[nodiscard]] std::vector<std::uint32_t> owned_bits(const std::vector<float>& sum) const {
    std::vector<std::uint32_t> bits;
    for (const int slice : space.owned_slices(topology.canonical_rank())) {
      for (std::int64_t i = 0; i < space.slice_size(); ++i) {
        bits.push_back(std::bit_cast<std::uint32_t>(sum[static_cast<std::size_t>(space.slice_begin(slice) + i)]));
      }
    }
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
