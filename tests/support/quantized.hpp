#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"
#include "train/buffers.hpp"

namespace argosy::test {

/// AdamW whose moments are 8-bit codes with one scale for a block of 256 elements (arXiv:2110.02861); those of
/// embeddings and of parameters without decay stay fp32. It shows that the dtype of state may differ by parameter.
/// Codes are linear: of the first moment in [-127, 127], of the root of the second in [0, 255].
class Quantized final : public optim::Optimizer {
 public:
  Quantized(const optim::OptimizerConfig& config, bool has_master)
      : Optimizer(0), adamw_(optim::make_optimizer(config, false, has_master)) {}

  static std::vector<spec::StateTensor> state(const spec::Unit& unit) {
    const bool packs = std::ranges::none_of(unit.parameters, &spec::Parameter::is_by_id);
    std::vector<spec::StateTensor> all{{std::string(spec::weights_tensor)}};
    for (const std::string_view name : spec::adam_moments) {
      const std::string moment(name);
      all.push_back({.name = moment, .covers = packs ? spec::Covers::without_decay : spec::Covers::all});
      if (!packs) continue;
      all.push_back({.name = moment + "_codes", .dtype = DType::u8, .covers = spec::Covers::with_decay});
      all.push_back({.name = moment + "_scales", .extent = spec::Extent::block, .covers = spec::Covers::with_decay});
    }
    return all;
  }

 private:
  void update_weights(std::span<const optim::Piece> pieces, const optim::Statistics& statistics,
                      const optim::Update& update) const override {
    if (update.coefficient.item<double>() < 0) return;
    for (const optim::Piece& piece : pieces) {
      optim::Piece wide = piece;
      const bool packed = piece.states.size() == 4;  // codes and scales of each moment, else the moments
      if (packed) wide.states = {decoded(piece, 0), decoded(piece, 1)};
      adamw_->update({&wide, 1}, statistics, update);
      for (std::size_t moment = 0; packed && moment < 2; ++moment) encode(wide.states[moment], piece, moment);
    }
  }

  static at::Tensor decoded(const optim::Piece& piece, std::size_t moment) {
    const at::Tensor codes = piece.states[2 * moment].reshape({-1, partition::unit_alignment}),
                     scales = piece.states[2 * moment + 1].unsqueeze(1);
    // Signed codes as two's complement.
    const at::Tensor values = moment == 0 ? codes.view(at::kChar).to(at::kFloat) / 127 * scales
                                          : (codes.to(at::kFloat) / 255 * scales).square();
    return values.flatten();
  }

  static void encode(const at::Tensor& values, const optim::Piece& piece, std::size_t moment) {
    const at::Tensor blocks = values.reshape({-1, partition::unit_alignment}),
                     linear = moment == 0 ? blocks : blocks.sqrt(), scales = linear.abs().amax(1);
    const at::Tensor parts = linear / scales.clamp_min(1e-30).unsqueeze(1);
    // A second moment that became 0 would make steps of any size: up.
    const at::Tensor codes = moment == 0 ? (parts * 127).round().to(at::kChar).view(at::kByte)
                                         : (parts * 255).ceil().clamp_max(255).to(at::kByte);
    piece.states[2 * moment].copy_(codes.flatten());
    piece.states[2 * moment + 1].copy_(scales);
  }

  std::unique_ptr<optim::Optimizer> adamw_;
};

/// Every number of a model's state, by unit, tensor and parameter; zeros for those of other ranks. Pads are left out,
/// so that the sum over the ranks does not depend on their layout.
inline std::vector<double> numbers_of(const std::vector<partition::FlatSpace>& spaces, train::Buffers& buffers,
                                      int rank) {
  std::vector<double> all;
  for (std::size_t u = 0; u < spaces.size(); ++u) {
    for (const auto& [tensor, shard] : buffers.units()[u].state) {
      const std::int64_t elements = tensor.elements(),
                         first = spec::owned_parts(spaces[u], tensor)[static_cast<std::size_t>(rank)].begin;
      const at::Tensor numbers = shard.to(at::kDouble);
      std::vector<std::size_t> begins;
      for (const partition::ParamSpec& param : spaces[u].params()) {
        begins.push_back(all.size());
        if (tensor.is_for(param))
          all.resize(all.size() + static_cast<std::size_t>((param.numel() + elements - 1) / elements));
      }
      for (const partition::Interval& own : partition::intervals_of(spaces[u], rank)) {
        if (!tensor.is_for(spaces[u].params()[own.param])) continue;
        std::copy_n(numbers.const_data_ptr<double>() + (own.local_offset - first) / elements,
                    (own.end - own.begin + elements - 1) / elements,
                    all.begin() + static_cast<std::ptrdiff_t>(begins[own.param]) + own.begin / elements);
      }
    }
  }
  return all;
}

}  // namespace argosy::test
