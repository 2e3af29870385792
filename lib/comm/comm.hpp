#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/comm_config.hpp"
#include "core/bytes.hpp"

/// A communicator over MPI with deadlines, for small control traffic; Collectives moves the model. MPI runs SERIALIZED:
/// one mutex covers every MPI call. Every operation is a non-blocking call that a loop tests, so no rank waits forever:
/// after `timeout_s` the waiting thread throws Error{comm}, which names operation, bytes, step and silent ranks. Owns
/// its MPI_Comm; move-only. A program started without mpiexec is a world of one rank.
namespace argosy::comm {

enum class Reduce { sum, min, max };

/// Control traffic of this process over all communicators: what it has passed to MPI and received. Message envelopes,
/// and what MPI forwards for other ranks, are not counted.
struct ControlTraffic {
  std::int64_t calls = 0, sent_bytes = 0, received_bytes = 0;
  auto operator<=>(const ControlTraffic&) const = default;
  [[nodiscard]] ControlTraffic since(const ControlTraffic& before) const {
    return {calls - before.calls, sent_bytes - before.sent_bytes, received_bytes - before.received_bytes};
  }
};

/// A type whose bytes are its value. Ranks exchange it as it lies in memory, since all run the same program; structs
/// with texts or lists are sent as JSON (comm/message.hpp).
template <class T>
concept Plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::ranges::range<T>;

class Communicator {
 public:
  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;

  /// **Collective.** Element-wise over ranks, in place. Sums are in rank order. All ranks get the same bits. The
  /// smallest and the largest of doubles are NaN if any rank has a NaN.
  void all_reduce(std::span<double> values, Reduce op = Reduce::sum) const;
  void all_reduce(std::span<std::int64_t> values, Reduce op = Reduce::sum) const;
  /// **Collective.** Rank `root`'s text, or its list of values, on all ranks.
  [[nodiscard]] std::string broadcast(std::string text, int root = 0) const;
  template <Plain T>
  [[nodiscard]] std::vector<T> broadcast(const std::vector<T>& values, int root = 0) const {
    return values_of<T>(as_bytes(std::string_view{broadcast(text_of(values), root)}));
  }
  /// **Collective.** All ranks' texts, by rank, on all ranks. Sizes may differ. Every rank receives every text: use
  /// gather() where one rank needs them, and a reduction (agree, odd_one) where only a verdict is needed.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) const;
  /// **Collective.** All ranks' values, by rank, on all ranks.
  template <Plain T>
  [[nodiscard]] std::vector<T> all_gather(const T& value) const {
    return values_of<T>(all_gather_bytes(std::as_bytes(std::span{&value, 1})));
  }
  /// **Collective.** All ranks' lists, by rank, on all ranks. Lengths may differ.
  template <Plain T>
  [[nodiscard]] std::vector<std::vector<T>> all_gather(const std::vector<T>& values) const {
    return lists_of<T>(all_gather(text_of(values)));
  }
  /// **Collective.** All ranks' texts, or their lists of values, by rank, on rank `root`; nothing elsewhere.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text, int root = 0) const;
  template <Plain T>
  [[nodiscard]] std::vector<std::vector<T>> gather(const std::vector<T>& values, int root = 0) const {
    return lists_of<T>(gather(text_of(values), root));
  }
  /// **Collective.** Waits for all ranks. Throws Error{comm} if two ranks give different names; it names both.
  void barrier(std::string_view name) const;
  /// **Collective.** Ranks of equal `color`, ordered by `key`.
  [[nodiscard]] Communicator split(int color, int key) const;
  /// **Collective.** A new communicator of the same ranks, for another thread or another kind of traffic.
  [[nodiscard]] Communicator duplicate() const;
  [[nodiscard]] ControlTraffic control_traffic() const;
  /// Sets the deadline of every communicator of the process from now on. ARGOSY_COMM_TIMEOUT_S in the environment takes
  /// precedence.
  void configure(const CommConfig& config) const;
  /// The raw MPI_Comm, for comm/ itself.
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  [[nodiscard]] std::vector<std::byte> all_gather_bytes(Bytes mine) const;
  template <Plain T>
  static std::string text_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  template <Plain T>
  static std::vector<T> values_of(Bytes bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::ranges::copy(bytes, std::as_writable_bytes(std::span{values}).begin());
    return values;
  }
  template <Plain T>
  static std::vector<std::vector<T>> lists_of(const std::vector<std::string>& texts) {
    std::vector<std::vector<T>> lists;
    lists.reserve(texts.size());
    for (const std::string& text : texts) lists.push_back(values_of<T>(as_bytes(std::string_view{text})));
    return lists;
  }

  std::unique_ptr<Impl> impl_;
};

/// **Collective.** Makes a local verdict common: if `body` throws Error on any rank, every rank throws the Error of the
/// lowest failing rank, which names that rank. Other exceptions become Fault::internal. An Error{comm} is rethrown at
/// once, because the other ranks cannot be told. `body` may take any time: after the deadline, ranks keep waiting for a
/// rank that is still in `body`, but not for a rank that does not answer.
void agree(const Communicator& world, const std::function<void()>& body);
/// **Collective.** agree() on what rank 0 alone does.
void at_root(const Communicator& world, const std::function<void()>& body);
/// **Collective.** True on all ranks if `value` is true on any.
[[nodiscard]] bool any_of(const Communicator& world, bool value);

/// **Collective.** The lowest rank where `value` is true, on all ranks; nullopt: none.
[[nodiscard]] std::optional<int> lowest_rank(const Communicator& world, bool value);

/// The lowest rank whose text is not rank 0's, and both texts.
struct Odd {
  int rank = 0;
  std::string first, other;
};
/// **Collective.** Nothing where all ranks have the same text. Moves rank 0's text, not everybody's.
[[nodiscard]] std::optional<Odd> odd_one(const Communicator& world, const std::string& text);

}  // namespace argosy::comm
