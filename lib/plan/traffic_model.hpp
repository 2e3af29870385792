#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/comm_config.hpp"
#include "comm/traffic.hpp"
#include "partition/flat_space.hpp"
#include "plan/memory_model.hpp"
#include "plan/step_plan.hpp"

/// Bytes that the collectives of a step plan send in one optimizer step (comm/traffic.hpp counts the same). Covers
/// gradients and weights only, without counts, norms and message headers. Pure.
namespace argosy::plan {

struct WireBytes {
  std::int64_t weight = 2, inner_gradient = 4, outer_gradient = 4;  // of an element
};

struct StepTraffic {
  std::int64_t rank_inner = 0, rank_outer = 0;  // of the rank that sends most in total: inside its node, out of it
  std::int64_t node = 0;                        // out of the node that sends most
  [[nodiscard]] std::int64_t rank() const { return rank_inner + rank_outer; }
};

/// What a collective moves; sums are fp32.
enum class Payload { weights, gradients, sums };
/// A collective operation that an operation of a step plan performs.
struct Collective {
  OpKind kind = OpKind::gather;  // gather or reduce
  comm::Levels levels = comm::Levels::both;
  Payload payload = Payload::weights;
  auto operator<=>(const Collective&) const = default;
};
/// Bytes of an element inside a node, and across nodes.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> element_bytes(Payload payload, const WireBytes& wire) noexcept;
/// The collectives of an operation. With `other`: those of that scheme in a plan of like(other), which gathers summed
/// gradients where Argosy gathers updated weights. Empty for operations that send nothing.
[[nodiscard]] std::vector<Collective> collectives_of(const Op& op, std::optional<Comparison> other = {});

/// What a rank sends in a step by its plan. spaces: by unit. rank_in: its number among the ranks that share a
/// component. Elastic sums send every rank's whole gradient in fp32: out of a node as many bytes as it has ranks times
/// the share of the other nodes. A single rank sends nothing.
[[nodiscard]] comm::Traffic::Bytes sent_bytes(const StepPlan& plan, std::span<const partition::FlatSpace> spaces,
                                              const WireBytes& wire, comm::Reduction reduction,
                                              std::optional<Comparison> other,
                                              const std::function<int(std::size_t component)>& rank_in);
/// by_rank: what each rank sends, by canonical rank.
[[nodiscard]] StepTraffic traffic_of(const partition::Layout& layout, std::span<const comm::Traffic::Bytes> by_rank);

/// What all collectives of a step send where all ranks share all units.
[[nodiscard]] StepTraffic planned_traffic(const StepPlan& plan, std::span<const partition::FlatSpace> spaces,
                                          const WireBytes& wire, comm::Reduction reduction,
                                          std::optional<Comparison> other = {});

}  // namespace argosy::plan
