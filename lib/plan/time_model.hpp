#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "plan/memory_model.hpp"
#include "telemetry/flops.hpp"

/// Predicted seconds of a step: what a GPU needs for one micro-batch, from shapes and sustained rates, and how much of
/// the traffic of each sharding scheme is left over beside it. Pure. Prediction, not measurement: 2 to 5 % are to be
/// taken off for multiprocessors that move data.
namespace argosy::plan {

/// A GPU and the node around it.
struct Gpu {
  std::string_view name, driver_name;  // the latter: part of what the driver calls it
  double memory_gib = 0;               // of which the context takes kContextGib
  double peak_flops = 0;               // dense bf16
  // Sustained, not peak: matrix products; attention forward and backward; bytes of element-wise kernels.
  double gemm_flops = 0, attention_forward_flops = 0, attention_backward_flops = 0, memory_bytes_per_s = 0;
  double inner_bytes_per_s = 0;  // a ring inside the node
  double outer_bytes_per_s = 0;  // out of the node, for each GPU of it
};
inline constexpr double kContextGib = 1.0;
/// By the names --gpu takes: h100, h200, a100. nullptr when unknown.
[[nodiscard]] const Gpu* gpu_by_name(std::string_view name);
/// By the name its driver gives ("NVIDIA H100 80GB HBM3"). nullptr for all but the models of the table.
[[nodiscard]] const Gpu* gpu_by_driver_name(std::string_view driver_name);
[[nodiscard]] std::int64_t capacity_bytes(const Gpu& gpu);

/// What telemetry counts FLOPs by.
[[nodiscard]] telemetry::FlopShape flop_shape(const spec::Architecture& shape);
/// The same for a micro-batch of whole rows.
[[nodiscard]] telemetry::Work work_of(const spec::Architecture& shape, const MicroBatch& batch);

/// Seconds of forward and backward of one micro-batch, recompute included. Element-wise bytes are those of the fused
/// kernels: residual and norm, rotary positions, activation, each way.
struct ComputeTime {
  double gemm_s = 0, attention_s = 0, elementwise_s = 0, gaps_s = 0;
  double forward_s = 0;  // of these, the forward pass
  [[nodiscard]] double total_s() const { return gemm_s + attention_s + elementwise_s + gaps_s; }
};
[[nodiscard]] ComputeTime compute_time(const spec::Architecture& shape, const MicroBatch& batch, Recompute recompute,
                                       std::int64_t element_bytes, const Gpu& gpu);
/// The same shared out to the visits of a model, in forward order; blocks of a kind take the same time. The head
/// computes its gradients beside the loss: all of its time is forward.
struct VisitTime {
  double forward_s = 0, backward_s = 0;
};
[[nodiscard]] std::vector<VisitTime> visit_times(const spec::Architecture& shape, const MicroBatch& batch,
                                                 Recompute recompute, std::int64_t element_bytes, const Gpu& gpu);
/// Norm and AdamW over `owned` elements: 34 bytes each.
[[nodiscard]] double optimizer_time(std::int64_t owned, bool ema, const Gpu& gpu);

/// Bandwidth in bytes/s and start-up of a message in s: out of a node, inside it.
struct Links {
  double outer_bytes_per_s = 0, inner_bytes_per_s = 0;
  double outer_latency_s = 12e-6, inner_latency_s = 4e-6;
};

struct StepInputs {
  int nodes = 1, ranks_per_node = 1, units = 1;
  int accumulation = 1;
  AccumulationOrder order = AccumulationOrder::depth_first;
  double micro_batch_s = 0;  // forward a third, backward two thirds
  double weight_bytes = 0;   // of all units
  double inner_gradient_bytes = 0, outer_gradient_bytes = 0;
  Links links{};
};

/// One pass over all units of so many bytes.
[[nodiscard]] double flat_time(const StepInputs& in, double size_bytes);
[[nodiscard]] double hierarchical_time(const StepInputs& in, double inner_bytes, double outer_bytes);
/// Of that, each level alone.
[[nodiscard]] double inner_time(const StepInputs& in, double size_bytes);
[[nodiscard]] double outer_time(const StepInputs& in, double size_bytes);

/// Seconds of a step without the update. `flat`: one ring over all ranks instead of two levels; hybrid and hsdp know no
/// other than two.
[[nodiscard]] double step_time(Scheme scheme, const StepInputs& in, bool flat = false);

}  // namespace argosy::plan
