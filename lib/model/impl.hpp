#pragma once

#include <optional>
#include <vector>

#include "model/block.hpp"
#include "model/model.hpp"

/// Units and layers of a model, which training and inference share. For .cpp files of this module.
namespace argosy::model {

struct Model::Impl {
  Impl(const spec::ModelSpec& spec, std::span<const partition::Layout> layouts);

  /// Embeds ids [rows, T]; positions start at `offset` unless given.
  [[nodiscard]] at::Tensor embed(const Parameter& table, spec::Position position, const at::Tensor& ids,
                                 const at::Tensor& positions, std::int64_t offset);
  /// site: the number of the visit, which selects its dropout masks.
  [[nodiscard]] State embed_visit(Parameter& table, bool encoder, std::int64_t site, const State& state,
                                  const Inputs& inputs, const Pass& pass);
  [[nodiscard]] State head_visit(const State& state, const Inputs& inputs, Pass& pass);

  const spec::ModelSpec spec;
  const spec::Architecture& shape;
  std::vector<Unit> units;
  std::vector<Visit> visits;
  RotaryTable rotary{shape};
  std::vector<Block> encoder, decoder;
  Parameter* source_table = nullptr;  // encoder-decoder only
  Parameter* target_table = nullptr;
  Parameter* head_weight = nullptr;
  Parameter* head_bias = nullptr;                       // null without biases
  std::optional<NormLayer> encoder_norm, decoder_norm;  // pre-norm models
  at::Tensor sinusoid_table;  // [max_positions, width] fp32; undefined if all positions are rotary
};

}  // namespace argosy::model
