#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
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
  /// Of ModelSpec::components. Its ranks are a comm::Group. A rank holds the units that its visits read.
  std::size_t component = 0;

  /// Adapters are units of their own.
  [[nodiscard]] bool has_adapters() const noexcept { return !parameters.empty() && parameters.front().is_adapter(); }
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
  std::string prefix{};            // of the names of a block's parameters
  std::vector<std::size_t> units;  // that it reads: first its own, then those shared with other visits
  bool reads_memory = false, writes_memory = false;
};

/// Whether a parameter belongs to what goes by this name: "embeddings" (what has a row for each id), "encoder" or
/// "decoder" (all else of a side), "encoder.fr", "embeddings.fr" (a component), "encoder.all" (what all tasks share of
/// a side).
[[nodiscard]] bool is_of(const Parameter& parameter, std::string_view name);

/// What some of the tasks share: all blocks of a side that go by one name.
struct Component {
  std::string name;                // "encoder.fr"; the first, "all", has everything that all tasks share
  std::vector<std::string> tasks;  // that have it
};

struct ModelSpec {
  Architecture architecture;
  Sharing sharing;
  /// In the order of the forward pass. Tied: one unit "embedding" holds the matrix, the head bias and the final norms;
  /// tied inputs: "embedding", "head"; untied: "source_embedding", "target_embedding", "head" (decoder-only:
  /// "embedding", "head"). With embeddings by language these have a unit for each language, "embeddings.fr" and
  /// "output.fr" (untied inputs: "source_embeddings.fr", "target_embeddings.fr"), and "shared" holds the final norms
  /// and learned positions. With T5's positions, the blocks of a side read its unit "<side>.relative_bias" as well.
  std::vector<Unit> units;
  /// Of all tasks: in the order of the forward pass, and of one layer the components one after the other.
  std::vector<Visit> visits;
  std::vector<Component> components;
  /// The ways through the model: numbers of visits, ascending. A plain model has one, through all of them.
  std::vector<std::vector<std::size_t>> routes;
  std::map<std::string, std::size_t> route_of;  // by task

  /// Of the units that a route reads.
  [[nodiscard]] std::set<std::size_t> components_on(std::size_t route) const;
  /// Components that none of these routes passes (data::StepBatches::routes).
  [[nodiscard]] std::set<std::size_t> idle_components(std::span<const int> passed) const;

  /// sharing: where it is not plain. Throws Error{config} if two components would have the same name, or if a stack is
  /// shared by groups and the language of a task has none.
  ModelSpec(const Architecture& of,  // NOLINT(google-explicit-constructor): it is a function of the architecture
            Sharing sharing = {});
};

/// How many blocks a model has in all, of all components. Throws as ModelSpec.
[[nodiscard]] std::int64_t block_count(const Architecture& architecture, const Sharing& sharing);

/// The part of a model that a route or a task passes, as a model of its own.
struct RouteModel {
  ModelSpec spec;                             // plain
  std::map<std::string, std::string> stored;  // by parameter of spec: its name in the whole model
};
/// whole: what is frozen in it is not frozen in the part.
[[nodiscard]] RouteModel model_of_route(const ModelSpec& whole, std::size_t route);
/// task: of the model, or another one, for which of each stack the component must exist that it would have. Throws
/// Error{usage} with the first that does not.
[[nodiscard]] RouteModel model_of_task(const ModelSpec& whole, const Task& task);

/// "[2, 3]", for messages.
[[nodiscard]] std::string text_of(const std::vector<std::int64_t>& shape);

}  // namespace argosy::spec
