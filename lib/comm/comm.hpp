#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm_config.hpp"

/// A communicator over MPI with deadlines. MPI runs SERIALIZED: one mutex covers every MPI call, and every operation is
/// the non-blocking call tested in a yielding loop, so no rank waits for ever: past `timeout_s` the waiting thread
/// throws Error{comm} naming operation, bytes, step and silent ranks. Owns its MPI_Comm; move-only; small control
/// traffic only (Collectives moves the model). A program without mpirun is a world of one.
namespace argosy::comm {

enum class Reduce { sum, min, max };

/// What a process has handed to MPI and got from it for control traffic, over all communicators; envelopes, and what
/// MPI forwards for others on the way, are not in it.
struct ControlTraffic {
  std::int64_t calls = 0, sent_bytes = 0, received_bytes = 0;
  auto operator<=>(const ControlTraffic&) const = default;
  [[nodiscard]] ControlTraffic since(const ControlTraffic& before) const {
    return {calls - before.calls, sent_bytes - before.sent_bytes, received_bytes - before.received_bytes};
  }
};

class Communicator {
 public:
  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;

  /// **Collective.** Element-wise over ranks, in place; order of sums is rank order, so results are the same on all
  /// ranks. Of doubles, the smallest and the largest are NaN where any rank has one.
  void all_reduce(std::span<double> values, Reduce op = Reduce::sum) const;
  void all_reduce(std::span<std::int64_t> values, Reduce op = Reduce::sum) const;
  /// **Collective.** Rank `root`'s text on all ranks.
  [[nodiscard]] std::string broadcast(std::string text, int root = 0) const;
  /// **Collective.** All ranks' texts, by rank, on all ranks (sizes may differ): each gets as many bytes as all have.
  /// Where one rank is to know, gather; where a verdict is wanted, reduce (agree, odd_one).
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) const;
  [[nodiscard]] std::vector<std::int64_t> all_gather(std::int64_t value) const;
  /// **Collective.** All ranks' texts, by rank, on rank `root`; nothing elsewhere.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text, int root = 0) const;
  /// **Collective.** Waits for all; `name` is checked: ranks in differently named barriers throw Error{comm} naming
  /// both.
  void barrier(std::string_view name) const;
  /// **Collective.** Ranks of equal `color`, ordered by `key`.
  [[nodiscard]] Communicator split(int color, int key) const;
  /// **Collective.** The same ranks in a communicator of its own, for another thread or another kind of traffic.
  [[nodiscard]] Communicator duplicate() const;
  [[nodiscard]] ControlTraffic control_traffic() const;
  /// Sets the deadline of every communicator of the process from here on; ARGOSY_COMM_TIMEOUT_S in the environment
  /// wins.
  void configure(const CommConfig& config) const;
  /// The raw MPI_Comm, for comm/ itself.
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// **Collective.** Makes a local verdict common: if `body` throws Error on any rank, every rank throws the same Error
/// (that of the lowest failing rank, with the rank named); other exceptions become Fault::internal. An Error{comm} is
/// rethrown at once: the others cannot be told. `body` may take as long as it likes: past the deadline the others wait
/// on for a rank that is at work in it, not for one that is silent.
void agree(const Communicator& world, const std::function<void()>& body);
/// **Collective.** True on all ranks if `value` is true on any.
[[nodiscard]] bool any_of(const Communicator& world, bool value);

/// The lowest rank whose text is not rank 0's, and both texts.
struct Odd {
  int rank = 0;
  std::string first, other;
};
/// **Collective.** Nothing where all ranks have the same text. Moves rank 0's text, not everybody's.
[[nodiscard]] std::optional<Odd> odd_one(const Communicator& world, const std::string& text);

}  // namespace argosy::comm
