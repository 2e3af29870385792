#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "partition/flat_space.hpp"
#include "spec/model_spec.hpp"

/// The code behind a specification (spec/model_spec.hpp): units with memory, and a function for each visit, which maps
/// State to State. The runner (train) walks the visits forward, keeps each one's input, and walks them back one
/// autograd segment at a time. Parameters are views of the unit's flat buffers, which the caller owns and binds; custom
/// functions write parameter gradients straight into the flat fp32 buffer (first write with beta 0, later with beta 1),
/// also when an input needs no gradient. There is no `.grad` of a parameter.
namespace argosy::model {

/// One parameter, bound to a place in its unit's flat buffers.
struct Parameter {
  std::string name;
  spec::Role role;
  std::vector<std::int64_t> shape;
  at::Tensor weight;              // view of the flat weight buffer, compute dtype
  at::Tensor gradient;            // view of the flat fp32 gradient buffer; undefined: frozen, or inference
  bool gradient_written = false;  // set by the first write of a step; decides beta
};

/// Names and shapes first (space), memory later (bind).
class Unit {
 public:
  Unit(const spec::Unit& spec, const partition::Layout& layout);
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const partition::FlatSpace& space() const noexcept { return space_; }
  /// Makes the parameters views of `weights` [padded_size] and `gradients` [padded_size] fp32 (undefined: no
  /// gradients).
  void bind(const at::Tensor& weights, const at::Tensor& gradients);
  /// Each binds one of the two and leaves the other. Allowed at any time, between the forward and the backward pass of
  /// a visit as well: what a visit keeps refers to its parameters, never to their memory.
  void bind_weights(const at::Tensor& flat);
  void bind_gradients(const at::Tensor& flat);
  /// Throws Error{internal} when absent. The reference stays good for the life of the model.
  [[nodiscard]] Parameter& parameter(const std::string& name);
  /// The one of that role; null when there is none.
  [[nodiscard]] Parameter* parameter(spec::Role role) noexcept;
  [[nodiscard]] std::vector<Parameter>& parameters() noexcept { return parameters_; }
  /// Before the first backward of a step: the next write of each gradient replaces what is there.
  void expect_fresh_gradients() noexcept;
  /// The first parameter that has a gradient bound to which nothing has been written since; null when there is none.
  [[nodiscard]] const Parameter* without_gradient() const noexcept;

 private:
  void bind_views(at::Tensor Parameter::*view, const at::Tensor& flat);

  std::string name_;
  partition::FlatSpace space_;
  std::vector<Parameter> parameters_;  // in flat order
};

/// What flows between visits. x: [rows, width_of_batch, d] or, after the head, the loss (scalar). memory: encoder
/// output.
struct State {
  at::Tensor x, memory;
};

/// One micro-batch on the model's device. Ids int64 [rows, S] / [rows, T], right-padded; lengths int64 [rows].
struct Inputs {
  at::Tensor source, source_lengths;    // encoder-decoder only
  at::Tensor target_in, target_labels;  // labels: -1 bears no loss
  at::Tensor target_lengths;
  at::Tensor positions,
      segments;  // packed LM rows: position in document, document number; undefined: 0..T-1, one document
};

struct LossOptions {
  double label_smoothing = 0.0;
  double z = 0.0;
  std::int64_t chunk_bytes = 256LL << 20;  // bound of a chunk of logits
};

/// What a pass over one micro-batch needs and leaves. Dropout masks are counter-based: (seed, step, micro_batch, visit,
/// element).
struct Pass {
  bool training = false;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;  // global index in the step: independent of the rank count
  double loss_scale = 1.0;       // 1 / loss-bearing tgt_tokens of the whole step, multiplied into dlogits
  LossOptions loss;
  // Changes no bit. block is the runner's: it calls a visit without recording, and with it before the backward pass.
  spec::Recompute recompute = spec::Recompute::none;
  // Left by the head, on the device, fp64: Σ nll (unsmoothed), Σ loss (what is optimised), tokens, tokens predicted
  // right.
  at::Tensor nll_sum, loss_sum, token_count, correct_count;
};

struct Visit : spec::Visit {
  std::function<State(const State&, const Inputs&, Pass&)> forward;
};

class Model {
 public:
  Model(const spec::ModelSpec& spec, const partition::Layout& layout);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const spec::ModelSpec& spec() const noexcept;
  [[nodiscard]] const spec::Architecture& architecture() const noexcept { return spec().architecture; }
  [[nodiscard]] std::vector<Unit>& units() noexcept;
  [[nodiscard]] const std::vector<Unit>& units() const noexcept;
  /// In forward order; the last one leaves the scaled loss in State::x. It writes the gradients of the output matrix in
  /// its forward pass already (while gradients are recorded), so its unit's gradients must be bound by then and its
  /// loss be walked back with gradient 1: scale by Pass::loss_scale. A visit called twice with the same state, inputs
  /// and pass gives the same bits twice; without recording it writes no gradients and keeps nothing.
  [[nodiscard]] const std::vector<Visit>& visits() const noexcept;
  [[nodiscard]] Parameter& parameter(const std::string& name);
  [[nodiscard]] std::int64_t parameters() const;  // count of elements, tied once

  struct Impl;  // for Inference
  [[nodiscard]] Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Fills `values` [end - begin] with elements [begin, end) of a parameter's initial value, as it declares it
/// (spec::Initial): fp32, counter-based, the same for any layout.
void initial_values(const spec::Parameter& parameter, std::uint64_t seed, std::int64_t begin, std::int64_t end,
                    float* values);

}  // namespace argosy::model
