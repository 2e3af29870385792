#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/documents.hpp"
#include "partition/flat_space.hpp"
#include "spec/model_spec.hpp"

/// The code of a model that a specification describes (spec/model_spec.hpp): units with memory, and a function for each
/// visit, which maps State to State. The runner (train) calls the visits in order, keeps the input of each, and runs
/// their backward passes one at a time. Parameters are views of the unit's flat buffers, which the caller owns and
/// binds. A backward pass writes parameter gradients directly into the flat fp32 buffer: the first write of a step
/// replaces, later ones add. A parameter has no `.grad`.
namespace argosy::model {

/// One parameter, bound to a place in its unit's flat buffers.
struct Parameter : spec::Parameter {
  at::Tensor weight;              // view of the flat weight buffer, compute dtype
  at::Tensor gradient;            // view of the flat fp32 gradient buffer; undefined if frozen or in inference
  bool gradient_written = false;  // in this step; the next write then adds
};

/// Parameters that are gathered and reduced together. Has names and shapes from the start, and memory after bind().
class Unit {
 public:
  Unit(const spec::Unit& spec, const partition::Layout& layout);
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const partition::FlatSpace& space() const noexcept { return space_; }
  /// Makes the parameters views of `weights` [padded_size] and `gradients` [padded_size] fp32 (undefined: no
  /// gradients).
  void bind(const at::Tensor& weights, const at::Tensor& gradients);
  /// Each binds one of the two buffers and leaves the other. Allowed at any time, also between the forward and the
  /// backward pass of a visit: a visit keeps references to its parameters, never to their memory.
  void bind_weights(const at::Tensor& flat);
  void bind_gradients(const at::Tensor& flat);
  /// Throws Error{internal} if there is none. The reference is valid as long as the model.
  [[nodiscard]] Parameter& parameter(const std::string& name);
  /// The parameter with that role; null if there is none.
  [[nodiscard]] Parameter* parameter(spec::Role role) noexcept;
  [[nodiscard]] std::vector<Parameter>& parameters() noexcept { return parameters_; }
  /// To be called before the first backward pass of a step: the next write of each gradient replaces its value.
  void expect_fresh_gradients() noexcept;
  /// The first parameter whose bound gradient has not been written since expect_fresh_gradients(); null if there is
  /// none.
  [[nodiscard]] const Parameter* without_gradient() const noexcept;

 private:
  void bind_views(at::Tensor Parameter::*view, const at::Tensor& flat);

  std::string name_;
  partition::FlatSpace space_;
  std::vector<Parameter> parameters_;  // in flat order
};

/// The parameters that a visit reads, of whichever of its units.
class VisitParameters {
 public:
  VisitParameters(std::vector<Unit>& units, const spec::Visit& visit);
  /// Null if there is none. The pointer is valid as long as the model.
  [[nodiscard]] Parameter* find(std::string_view name) const noexcept;
  [[nodiscard]] Parameter* find(spec::Role role) const noexcept;
  /// Throws Error{internal} if there is none.
  [[nodiscard]] Parameter& at(const std::string& name) const;

 private:
  std::vector<Unit*> units_;
};

/// The input and output of a visit. x: [rows, positions, d]; after the head, the loss (a scalar). memory: the encoder's
/// output.
struct State {
  at::Tensor x, memory;
};

/// One micro-batch on the model's device. Ids int64 [rows, S] / [rows, T], right-padded; lengths int64 [rows].
struct Inputs {
  at::Tensor source, source_lengths;    // encoder-decoder only
  at::Tensor target_in, target_labels;  // label -1: no loss
  at::Tensor target_lengths;
  at::Tensor source_positions, positions;  // int64 [rows, S], [rows, T], of examples that are shifted, and of packed
                                           // rows, in their document; undefined: 0, 1, 2, …
  at::Tensor segments;                     // of packed rows: number of the document; undefined: one document
  std::optional<kernels::Documents> documents;  // the same for a GPU (kernels::AttentionMask)
  at::Tensor prompts;  // with prefix_lm, int64 [rows, T]: where the prompt around a position ends, outside one 0;
                       // undefined: no prompts
};

struct LossOptions {
  double label_smoothing = 0.0;
  double z = 0.0;
  double error_norm_truncation = 0.0;      // threshold above which a token leaves the loss; 0: none
  std::int64_t chunk_bytes = 256LL << 20;  // upper bound for a chunk of logits
};

/// Settings and results of a pass over one micro-batch. Dropout masks and noise are counter-based: they depend only on
/// seed, step, micro_batch, visit and element.
struct Pass {
  bool training = false;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;  // index among those of all ranks in the step
  double loss_scale = 1.0;       // 1 / loss-bearing tgt_tokens of the whole step; multiplies every gradient
  LossOptions loss;
  // What a block drops in the forward pass and computes again in the backward pass. Every level gives the same bits.
  // For the level `block`, the runner calls the visit without recording, and again with recording before its backward
  // pass.
  spec::Recompute recompute = spec::Recompute::none;
  // Set by the head, on the device, in fp64: Σ nll (unsmoothed), Σ loss (what is optimized), the number of tokens, the
  // number of tokens that are predicted correctly, and of those that are in nll_sum but not in loss_sum.
  at::Tensor nll_sum, loss_sum, token_count, correct_count, truncated_count;
  bool wants_nll = false;
  at::Tensor nll;  // then: of each target position [R · T], 0 where there is no loss; on the device, in fp64
};

struct Visit : spec::Visit {
  std::function<State(const State&, const Inputs&, Pass&)> forward;
};

class Model {
 public:
  /// Of all components.
  Model(const spec::ModelSpec& spec, const partition::Layout& layout)
      : Model(spec, std::vector(spec.components.size(), layout)) {}
  /// layouts: by component of the units.
  Model(const spec::ModelSpec& spec, std::span<const partition::Layout> layouts);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const spec::ModelSpec& spec() const noexcept;
  [[nodiscard]] const spec::Architecture& architecture() const noexcept { return spec().architecture; }
  [[nodiscard]] std::vector<Unit>& units() noexcept;
  [[nodiscard]] const std::vector<Unit>& units() const noexcept;
  /// In forward order. The last visit, the head, returns the loss times Pass::loss_scale in State::x. While gradients
  /// are recorded, the head writes the gradient of the output matrix in its forward pass. So the gradients of its unit
  /// must be bound before that, and the backward pass must start with gradient 1. A visit that is called twice with the
  /// same state, inputs and pass gives the same bits. Without recording, a visit writes no gradients and keeps nothing.
  [[nodiscard]] const std::vector<Visit>& visits() const noexcept;
  /// For families that add to the code of a visit.
  [[nodiscard]] std::vector<Visit>& visits() noexcept;

  struct Impl;  // for Inference
  [[nodiscard]] Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Fills `values` [end - begin] with elements [begin, end) of a parameter's initial value, which the specification
/// declares (spec::Initial): fp32, counter-based, the same for any number of ranks.
void initial_values(const spec::Parameter& parameter, std::uint64_t seed, std::int64_t begin, std::int64_t end,
                    float* values);

}  // namespace argosy::model
