#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "partition/flat_space.hpp"
#include "spec/model_config.hpp"
#include "spec/state.hpp"

/// What a model is, as data: its parameters with their roles, the units they are grouped into, and the visits of a
/// forward pass. The model maps a visit's kind to code. Planner, buffers, initial values and export read the same
/// lists; no other code interprets parameter names. Torch-free.
namespace argosy::spec {

/// What a parameter is for.
enum class Role {
  source_embedding,
  target_embedding,  // of the decoder; if tied, of the encoder and the output as well; if inputs are, of the encoder
  head_weight,
  head_bias,
  position_table,   // learned positions of one side
  relative_bias,    // of T5: one number for each bucket of distances and head, for all blocks of a side
  attention_qkv,    // self-attention, stacked
  attention_query,  // cross-attention
  attention_key_value,
  attention_out,
  ffn_in,
  ffn_out,
  linear_bias,
  norm_scale,
  norm_shift,
  adapter_down,  // next to a frozen matrix (fine_tuning.hpp): A
  adapter_up,    // B
};

/// One of the matrices (or biases) that a parameter stacks. Its rows follow those of the previous part.
struct Part {
  std::string name;  // "query", "key", "value"; "gate", "up"
  std::int64_t rows = 0;
  std::optional<double> deviation = std::nullopt;  // of its initial values, if not the parameter's
};

/// Initial values: `constant`, or normal with this standard deviation, or uniform in ±`uniform`; row `zero_row` is 0.
struct Initial {
  double constant = 0, deviation = 0, uniform = 0;
  std::optional<std::int64_t> zero_row = std::nullopt;
  std::optional<std::int64_t> dead_from = std::nullopt;  // elements from this one on are -1e4: dead ids of the output
};

struct Parameter : partition::ParamSpec {
  Role role = Role::linear_bias;
  Initial initial{};
  std::vector<Part> parts{};  // empty: a single matrix or vector
  double scale = 1;           // adapter_up: what the adapters' product is multiplied by
  double dropout = 0;         // adapter_down: of what it reads, in training
  /// Whether it has one row per id.
  [[nodiscard]] bool is_by_id() const noexcept;
  [[nodiscard]] bool is_adapter() const noexcept { return role == Role::adapter_down || role == Role::adapter_up; }
};

/// A parameter, or one of the parts that it stacks. A vector is a matrix with one column.
struct Matrix {
  std::string name;            // the parameter's, or "<parameter>/<part>"
  const Parameter* parameter;  // of the unit that was asked
  std::int64_t begin = 0;      // of its first element within the parameter
  std::int64_t rows = 0, columns = 1;
};

/// What is gathered, computed and reduced together.
struct Unit {
  std::string name;  // "embedding", "encoder.0", "decoder.0", "encoder.relative_bias", "head" …
  std::vector<Parameter> parameters;
  bool is_block = false;  // one of many of the same kind, which may take turns in a buffer
  /// Its weights do not change: it has no gradients, master weights or state. A frozen part of a block is a unit of its
  /// own, which the visit reads as well, as with adapters (LoRA, arXiv:2106.09685).
  bool frozen = false;
  /// The ranks that share it: index of their comm::Group. 0: all ranks. A rank holds the units that its visits read.
  std::size_t component = 0;

  /// The parameter of that name. Throws Error{internal} if there is none.
  [[nodiscard]] const Parameter& parameter(const std::string& name_of_it) const;
  [[nodiscard]] std::vector<Matrix> matrices() const;
  /// The tensors that training keeps for it: of those of an optimizer, only the weights if it is frozen.
  [[nodiscard]] std::vector<StateTensor> kept(const StateOf& state) const;
  [[nodiscard]] std::vector<partition::ParamSpec> flat() const { return {parameters.begin(), parameters.end()}; }
  /// What the flat space of a state tensor contains: the parameters, or by row or column for each matrix a vector with
  /// one element per row or column, "<matrix>/<tensor>", in the order of matrices().
  [[nodiscard]] std::vector<partition::ParamSpec> flat(const StateTensor& tensor) const;
};

enum class VisitKind { source, encoder_block, target, decoder_block, head };

/// One stage of the forward pass.
struct Visit {
  std::string name;  // "source", "encoder.0", "target", "decoder.0", "head"
  VisitKind kind = VisitKind::head;
  std::int64_t layer = 0;          // of a block
  std::vector<std::size_t> units;  // that it reads: first its own, then those shared with other visits
  bool reads_memory = false, writes_memory = false;
};

struct ModelSpec {
  Architecture architecture;
  /// In the order of the forward pass. Tied: one unit "embedding" holds the matrix, the head bias and the final norms;
  /// tied inputs: "embedding", "head"; untied: "source_embedding", "target_embedding", "head" (decoder-only:
  /// "embedding", "head"). With T5's positions, the blocks of a side read its unit "<side>.relative_bias" as well.
  std::vector<Unit> units;
  std::vector<Visit> visits;

  ModelSpec(const Architecture& of);  // NOLINT(google-explicit-constructor): it is a function of the architecture
};

}  // namespace argosy::spec
