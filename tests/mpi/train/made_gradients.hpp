#pragma once

#include "mpi/train/rank.hpp"

/// Gradients that a formula makes, the same on any layout, instead of those of a model.
namespace argosy::test {

/// As optimizer_judge.py makes them: between -0.5 and 0.5, five times as large in every tenth step.
inline float gradient_of(std::size_t matrix, int step, std::int64_t element) {
  auto h = static_cast<std::uint32_t>(matrix) * 0x9E3779B1U + static_cast<std::uint32_t>(step) * 0x85EBCA77U +
           static_cast<std::uint32_t>(element) * 0xC2B2AE3DU;
  h = (h ^ (h >> 15)) * 0x2C1B3C6DU;
  h = (h ^ (h >> 12)) * 0x297A2D39U;
  h ^= h >> 15;
  return (static_cast<float>(h >> 8) * 0x1p-24F - 0.5F) * (step % 10 == 0 ? 5.0F : 1.0F);
}

struct MadeMatrix {
  std::size_t unit = 0;
  std::int64_t begin = 0, rows = 0, columns = 0;  // begin: in the unit's flat space
  std::int64_t first = 0;                         // of Rank::weights()
  bool decays = false, is_hidden = false;
};

inline std::vector<MadeMatrix> matrices_of(Rank& rank) {
  std::vector<MadeMatrix> all;
  const std::vector<partition::FlatSpace> spaces = rank.spaces();
  for (std::int64_t first = 0, u = 0; const partition::FlatSpace& space : spaces) {
    const spec::Unit& unit = rank.model().spec().units[static_cast<std::size_t>(u)];
    std::vector<std::int64_t> firsts;
    for (const partition::ParamSpec& param : space.params())
      firsts.push_back(std::exchange(first, first + param.numel()));
    for (const spec::Matrix& matrix : unit.matrices()) {
      const std::size_t index = space.index_of(matrix.parameter->name);
      all.push_back({.unit = static_cast<std::size_t>(u),
                     .begin = space.offset(index) + matrix.begin,
                     .rows = matrix.rows,
                     .columns = matrix.columns,
                     .first = firsts[index] + matrix.begin,
                     .decays = matrix.parameter->decay,
                     .is_hidden = matrix.parameter->decay && unit.is_block});
    }
    ++u;
  }
  return all;
}

inline void set_gradients(Rank& rank, const std::vector<MadeMatrix>& matrices, int canonical_rank, int step) {
  const std::vector<partition::FlatSpace> spaces = rank.spaces();
  for (std::size_t u = 0; u < spaces.size(); ++u) {
    std::vector<float> flat(static_cast<std::size_t>(spaces[u].padded_size()));
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const MadeMatrix& matrix = matrices[m];
      for (std::int64_t i = 0; matrix.unit == u && i < matrix.rows * matrix.columns; ++i)
        flat[static_cast<std::size_t>(matrix.begin + i)] = gradient_of(m, step, i);
    }
    float* local = rank.buffers().units()[u].shard.gradient.data_ptr<float>();
    for (const int slice : spaces[u].owned_slices(canonical_rank))
      local = std::copy_n(flat.begin() + spaces[u].slice_begin(slice), spaces[u].slice_size(), local);
  }
}

/// Rounding of bf16 in each of the three products of Muon's five iterations, half of it, and nothing averages out.
constexpr double bf16_bound = 5 * 3 * 0x1p-9 * 2;

}  // namespace argosy::test
