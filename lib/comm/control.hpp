#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/session.hpp"

/// Control traffic over MPI, for comm/ itself: few values and texts of any size, under the deadline. What a rank moves
/// grows at most with the number of ranks, never with its square, and not at all where only a verdict is wanted. All
/// functions are **Collective** over the communicator, count what they move (Communicator::control_traffic) and throw
/// Error{comm}. Buffers of an operation that is given up on stay alive.
namespace argosy::comm {

/// Element-wise, in place: order does not matter, so MPI's own reduction does it. `said_bytes`: in errors, if not the
/// values' size.
void reduce_in_any_order(const Communicator::Impl& impl, std::span<std::int64_t> values, Reduce op,
                         const std::string& operation, std::int64_t said_bytes = -1);
/// Smallest or largest, in place; NaN where any rank has one, and −0 is less than 0: the same bits on all ranks.
void extremes(const Communicator::Impl& impl, std::span<double> values, Reduce op);
/// Sums in rank order, in place: rank 0 gathers and adds, all get its sums.
void sum_in_rank_order(const Communicator::Impl& impl, std::span<double> values);

/// Every rank's `mine` (the same size everywhere) by rank: at `root`, or at all ranks.
[[nodiscard]] std::vector<std::byte> gather_equal(const Communicator::Impl& impl, std::vector<std::byte> mine,
                                                  std::optional<int> root, const std::string& operation);
/// Texts of any size, by rank: at `root` (nothing elsewhere), or at all ranks. MPI counts bytes of a call in an int:
/// texts of more than `call_bytes` together travel in pieces.
[[nodiscard]] std::vector<std::string> gather_texts(const Communicator::Impl& impl, const std::string& text,
                                                    std::optional<int> root, std::int64_t call_bytes = INT_MAX);
/// Rank `root`'s text, in pieces of `call_bytes`.
[[nodiscard]] std::string broadcast_text(const Communicator::Impl& impl, std::string text, int root,
                                         std::int64_t call_bytes = INT_MAX);

}  // namespace argosy::comm
