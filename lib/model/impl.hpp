#pragma once

#include <optional>
#include <vector>

#include "model/block.hpp"
#include "model/model.hpp"

/// Units and layers of a model, which training and inference share. For .cpp files of this module.
namespace argosy::model {

struct Model::Impl {
  Impl(const spec::ModelSpec& spec, std::span<const partition::Layout> layouts);

  /// What embeds the ids of a side. Its parameters belong to the unit of the visit.
  struct Embedding {
    Parameter* table = nullptr;
    Parameter* positions = nullptr;  // learned ones
    at::Tensor sinusoids{};          // [max_positions, width] fp32; undefined if positions are of another kind
  };

  /// Embeds ids [rows, T]; positions start at `offset` unless given, and then none is above offset + T - 1.
  [[nodiscard]] at::Tensor embed(Embedding& embedding, const at::Tensor& ids, const at::Tensor& positions,
                                 std::int64_t offset) const;
  /// What makes logits. Its parameters belong to the unit of the visit.
  struct Head {
    Parameter* weight = nullptr;
    Parameter* bias = nullptr;  // null without biases
  };
  /// site: the number of the visit, which selects its dropout masks and its noise.
  [[nodiscard]] State embed_visit(Embedding& embedding, bool encoder, std::int64_t site, const State& state,
                                  const Inputs& inputs, const Pass& pass);
  [[nodiscard]] State head_visit(const Head& head, const State& state, const Inputs& inputs, Pass& pass);

  const spec::ModelSpec spec;
  const spec::Architecture& shape;
  std::vector<Unit> units;
  std::vector<Visit> visits;
  RotaryTable rotary{shape};
  std::vector<Block> encoder, decoder;
  std::vector<Embedding> sources, targets;  // of each such visit; sources: encoder-decoder only
  std::vector<Head> heads;
  std::optional<NormLayer> encoder_norm, decoder_norm;  // pre-norm models
};

}  // namespace argosy::model
