#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "partition/flat_space.hpp"
#include "plan/memory_model.hpp"
#include "plan/simulation.hpp"
#include "plan/traffic_model.hpp"
#include "telemetry/flops.hpp"

/// Predicted seconds of each operation of a step, for the simulation: computing, from shapes and the sustained rates of
/// a GPU, and communication, from the bandwidths of the links. Pure. An estimate: measured speed is 2 to 5 % lower,
/// because some multiprocessors move data.
namespace argosy::plan {

/// Operations or bytes a second. Measured: with this code on that GPU (scripts/gpu_check). All others are bounds, which
/// other programs reach at best: this code may be far slower.
struct Rate {
  constexpr Rate(double of = 0, bool with_this_code = false) : per_s(of), is_measured(with_this_code) {}
  constexpr operator double() const { return per_s; }

  double per_s;
  bool is_measured;
};

/// A GPU and the node around it.
struct Gpu {
  std::string_view name, driver_name;  // the latter: part of the name that the driver reports
  double memory_gib = 0;               // of which the context takes context_gib
  double peak_flops = 0;               // dense bf16
  // Sustained, not peak: matrix products; attention forward and backward; bytes of element-wise kernels.
  Rate gemm_flops, attention_forward_flops, attention_backward_flops, memory_bytes_per_s;
  Rate inner_bytes_per_s;  // a ring inside the node
  Rate outer_bytes_per_s;  // out of the node, for each GPU of it
  Rate fp32_flops;         // sustained, of matrix products in fp32
  int multiprocessors = 0;
};
struct NamedRate {
  std::string_view key, name, unit;  // the key is that of the JSON of a plan
  Rate rate;
};
[[nodiscard]] std::array<NamedRate, 7> rates_of(const Gpu& gpu);
inline constexpr double context_gib = 1.0;
/// By a name that --gpu takes: h100, h200, a100. nullptr if it is unknown.
[[nodiscard]] const Gpu* gpu_by_name(std::string_view name);
/// By the name that the driver reports ("NVIDIA H100 80GB HBM3"). nullptr for models that are not in the table.
[[nodiscard]] const Gpu* gpu_by_driver_name(std::string_view driver_name);
[[nodiscard]] std::int64_t capacity_bytes(const Gpu& gpu);

/// The shape from which telemetry counts FLOPs.
[[nodiscard]] telemetry::FlopShape flop_shape(const spec::ModelSpec& spec);
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
/// The same, divided among the visits of a model, in forward order. Blocks of one kind take the same time. The head
/// computes its gradients together with the loss: all of its time is forward. Frozen matrices have no gradients;
/// adapters add their products.
struct VisitTime {
  double forward_s = 0, backward_s = 0;
};
[[nodiscard]] std::vector<VisitTime> visit_times(const spec::ModelSpec& spec, const MicroBatch& batch,
                                                 Recompute recompute, std::int64_t element_bytes, const Gpu& gpu);
/// What a rank updates: elements, and bytes of what is kept for them besides the weights.
struct UpdateShare {
  std::int64_t elements = 0, state_bytes = 0;
  std::int64_t master_bytes = 4, weight_bytes = 2;  // of an element; alike: the weights are the master
  bool ema = false;
};
/// Seconds that its memory takes: for the norm, and for the update of each element (34 bytes together with AdamW and an
/// fp32 master).
struct UpdateTime {
  double norm_s = 0, update_s = 0;
  [[nodiscard]] double total_s() const { return norm_s + update_s; }
};
[[nodiscard]] UpdateTime optimizer_time(const UpdateShare& share, const Gpu& gpu);
/// Seconds of Muon's iteration over the matrices of a unit, on the rank that has most of them. Matrix i of unit u is
/// that of rank (u + i) mod ranks. element_bytes: of the weights, and of the factors of these products.
[[nodiscard]] double muon_time(const spec::Unit& unit, std::size_t index, int ranks, std::int64_t element_bytes,
                               const Gpu& gpu);

/// Bandwidth in bytes/s and latency of a message in s, out of a node and inside it.
struct Links {
  double outer_bytes_per_s = 0, inner_bytes_per_s = 0;
  double outer_latency_s = 12e-6, inner_latency_s = 4e-6;
};

struct CostInputs {
  std::vector<VisitTime> visits{};   // by visit
  UpdateTime update{};               // of all units that are not frozen
  std::set<std::size_t> frozen{};    // units
  std::vector<double> matrices_s{};  // by unit: of matrices that the optimizer takes whole, at their owners
  int nodes = 1, ranks_per_node = 1;
  /// By component, nodes of the ranks that share it, and the most of these on a node; empty: those above.
  std::vector<std::pair<int, int>> groups{};
  Links links{};
  WireBytes wire{};
  comm::Reduction reduction = comm::Reduction::exact;
  std::optional<Comparison> other{};  // counts its collectives, in a plan of like(other)
};
/// Seconds of an operation of a step plan that runs alone: visits as a GPU computes them; gathers and reductions on
/// rings of two levels, inside a node and between nodes, at the same time. spaces: by unit; only their sizes are used.
[[nodiscard]] OpCost op_cost(const CostInputs& in, std::span<const partition::FlatSpace> spaces);

}  // namespace argosy::plan
