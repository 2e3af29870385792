#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/elementwise.hpp"
#include "kernels/gemm.hpp"
#include "model/model.hpp"
#include "spec/fine_tuning.hpp"

/// Linear layer and norm over bound parameters, without autograd. Their backward functions write parameter gradients
/// directly into the unit's fp32 buffer: the first write of a step replaces, later ones add. Values are [n, features].
namespace argosy::model {

/// The tensor as kernels take it: absent if undefined.
[[nodiscard]] inline std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Where the next gradient of a parameter is written. claim_gradient() marks it as written.
struct GradientSlot {
  at::Tensor gradient;  // undefined: frozen
  bool accumulate = false;
};
[[nodiscard]] GradientSlot claim_gradient(Parameter& parameter);

/// Whether a pass drops a part of what adapters read; all calls of a layer in a pass are given the same.
struct AdapterDropout {
  bool training = false;
  kernels::DropoutKey key{};  // its site plus the number of the layer in its block is unique in a micro-batch
};

/// What is added to the output of a linear layer whose matrix is frozen: scale·(dropout(x)·Aᵀ)·Bᵀ, by parts of the
/// matrix (spec/fine_tuning.hpp). A and B are bound as other parameters are.
class Adapters {
 public:
  /// down, up: A and B of the matrix; number: of the layer in its block.
  Adapters(const Parameter& matrix, Parameter& down, Parameter& up, std::int64_t number);
  void forward(const at::Tensor& x, const at::Tensor& y, const AdapterDropout& dropout) const;
  void backward_parameters(const at::Tensor& dy, const at::Tensor& x, const AdapterDropout& dropout) const;
  /// Adds to the gradient of x.
  void backward_input(const at::Tensor& dy, const at::Tensor& dx, const AdapterDropout& dropout) const;

 private:
  /// Its own gradient.
  [[nodiscard]] at::Tensor dropped(const at::Tensor& x, const AdapterDropout& dropout) const;
  /// scale·dy·B [n, rows of A].
  [[nodiscard]] at::Tensor inner_gradient(const at::Tensor& dy) const;

  Parameter *down_, *up_;
  std::vector<spec::AdapterPart> parts_;
  std::int64_t number_;
};

struct Linear {
  Parameter* weight = nullptr;  // [out, in]
  Parameter* bias = nullptr;    // [out], or null
  std::optional<Adapters> adapters{};
  std::optional<kernels::PackedMatrix> packed{};

  /// number: of the layer in its block.
  Linear(const VisitParameters& parameters, const std::string& name, std::int64_t number);
  /// x·Wᵀ + b; without `with_bias`, the caller's fused kernel adds the bias.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const AdapterDropout& dropout, bool with_bias = true) const;
  /// Until unpack(), forward() reads a copy of the weight that is made now, in the order in which the device reads it.
  void pack(kernels::PackedType type) { packed = kernels::pack_matrix(weight->weight.t(), type); }
  void unpack() { packed.reset(); }
  /// Gradients of weight, adapters and, with `and_bias`, of the bias.
  void backward_parameters(const at::Tensor& dy, const at::Tensor& x, const AdapterDropout& dropout,
                           bool and_bias = true) const;
  /// dy·W (+ `add`, which is consumed).
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& dy, const AdapterDropout& dropout,
                                          const at::Tensor& add = {}) const;
};

struct NormLayer {
  Parameter* gamma = nullptr;
  Parameter* beta = nullptr;  // null in RMSNorm
  double epsilon = 1e-5;

  struct Saved {
    at::Tensor x, mean, rstd;
  };
  NormLayer(const VisitParameters& parameters, const std::string& name, const spec::Architecture& shape);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, Saved* saved = nullptr) const;
  /// Gradient of x (+ `add`); writes those of gamma and beta.
  [[nodiscard]] at::Tensor backward(const at::Tensor& dy, const Saved& saved, const at::Tensor& add = {}) const;
};

}  // namespace argosy::model
