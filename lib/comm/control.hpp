#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/session.hpp"

/// Control traffic over MPI, for comm/ itself: few values, and texts of any size, with the deadline. The bytes that a
/// rank moves grow at most in proportion to the number of ranks; for a verdict they do not grow. All functions are
/// **Collective** over the communicator, count what they move (Communicator::control_traffic) and throw Error{comm}.
/// The buffers of an operation that is given up stay alive.
namespace argosy::comm {

/// Element-wise, in place, by MPI's own reduction, since the order does not matter. Errors name `said_bytes`, or the
/// size of the values.
void reduce_in_any_order(const Communicator::Impl& impl, std::span<std::int64_t> values, Reduce op,
                         const std::string& operation, std::int64_t said_bytes = -1);
/// Smallest or largest, in place, with the same bits on all ranks: NaN if any rank has one; −0 is less than 0.
void extremes(const Communicator::Impl& impl, std::span<double> values, Reduce op);
/// Sums in rank order, in place: rank 0 gathers and adds, then broadcasts the sums.
void sum_in_rank_order(const Communicator::Impl& impl, std::span<double> values);

/// Every rank's `mine` (the same size everywhere) by rank: at `root`, or at all ranks.
[[nodiscard]] std::vector<std::byte> gather_equal(const Communicator::Impl& impl, std::vector<std::byte> mine,
                                                  std::optional<int> root, const std::string& operation);
/// Texts of any size, by rank: at `root` (nothing elsewhere), or at all ranks. MPI counts the bytes of a call in an
/// int, so texts of more than `call_bytes` together are sent in pieces.
[[nodiscard]] std::vector<std::string> gather_texts(const Communicator::Impl& impl, const std::string& text,
                                                    std::optional<int> root, std::int64_t call_bytes = INT_MAX);
/// Rank `root`'s text, in pieces of `call_bytes`.
[[nodiscard]] std::string broadcast_text(const Communicator::Impl& impl, std::string text, int root,
                                         std::int64_t call_bytes = INT_MAX);

}  // namespace argosy::comm
