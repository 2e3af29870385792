#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "partition/flat_space.hpp"
#include "spec/model_config.hpp"

/// What a model is, as data: its parameters with their roles, the units they are grouped into, and the visits of a
/// forward pass. The model maps a visit's kind to code; planner, buffers, initial values and export read the same
/// lists. Nobody else looks at names. Torch-free.
namespace argosy::spec {

/// What a parameter is for.
enum class Role {
  source_embedding,
  target_embedding,  // of the decoder; both sides' and the output's where they are tied
  head_weight,
  head_bias,
  attention_qkv,    // self-attention, stacked
  attention_query,  // cross-attention
  attention_key_value,
  attention_out,
  ffn_in,
  ffn_out,
  linear_bias,
  norm_scale,
  norm_shift,
};

/// One of the matrices (or biases) that a parameter stacks: rows of it, after those of the part before.
struct Part {
  std::string name;  // "query", "key", "value"; "gate", "up"
  std::int64_t rows = 0;
};

/// Elements are `constant`, or normal with this deviation; those of row `zero_row` are 0.
struct Initial {
  double constant = 0, deviation = 0;
  std::optional<std::int64_t> zero_row = std::nullopt;
  std::optional<std::int64_t> dead_from = std::nullopt;  // elements from here on are -1e4: dead ids of the output
};

struct Parameter : partition::ParamSpec {
  Role role = Role::linear_bias;
  Initial initial{};
  std::vector<Part> parts{};  // empty: it is one matrix or vector
  /// Has a row for each id.
  [[nodiscard]] bool is_by_id() const noexcept;
};

/// What is gathered, computed and reduced together.
struct Unit {
  std::string name;  // "embedding", "encoder.0", "decoder.0", "head" …
  std::vector<Parameter> parameters;
  bool is_block = false;  // one of many alike, which may take turns in a buffer

  /// The one of that name. Throws Error{internal} when there is none.
  [[nodiscard]] const Parameter& parameter(const std::string& name_of_it) const;
  [[nodiscard]] std::vector<partition::ParamSpec> flat() const { return {parameters.begin(), parameters.end()}; }
};

enum class VisitKind { source, encoder_block, target, decoder_block, head };

/// One stop of the forward pass.
struct Visit {
  std::string name;  // "source", "encoder.0", "target", "decoder.0", "head"
  VisitKind kind = VisitKind::head;
  std::int64_t layer = 0;          // of a block
  std::vector<std::size_t> units;  // that it reads; the first one is its own, others are shared with other visits
  bool reads_memory = false, writes_memory = false;
};

struct ModelSpec {
  Architecture architecture;
  /// In the order of the forward pass. Tied: one unit "embedding" holds the matrix, the head bias and the final norms;
  /// untied: "source_embedding", "target_embedding", "head" (decoder-only: "embedding", "head").
  std::vector<Unit> units;
  std::vector<Visit> visits;

  ModelSpec(const Architecture& of);  // NOLINT(google-explicit-constructor): it follows from the architecture
  /// Number of the unit of that name. Throws Error{internal} when there is none.
  [[nodiscard]] std::size_t unit(const std::string& name) const;
};

}  // namespace argosy::spec
