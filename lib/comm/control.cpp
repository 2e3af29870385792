// The operations of a Communicator over MPI: few values, and texts of any size. The bytes that a rank moves grow at
// most in proportion to the number of ranks; for a verdict they do not grow. All count what they move. The buffers of
// an operation that is given up stay alive.
#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "comm/session.hpp"
#include "core/bytes.hpp"
#include "core/hash.hpp"

namespace argosy::comm {
namespace {

using Buffer = std::vector<std::byte>;

Buffer bytes_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

template <class T>
Buffer bytes_of(std::span<T> values) {
  return bytes_of(Bytes{std::as_bytes(values)});
}

/// Starts an operation, waits for it and counts it. MPI may use `memory` until the operation has ended.
template <class Start>
void run(const Communicator::Impl& impl, const Waiting& waiting, std::initializer_list<Buffer*> memory,
         std::int64_t sent_bytes, std::int64_t received_bytes, Start start) {
  impl.session.count(sent_bytes, received_bytes);
  try {
    impl.complete(waiting, start);
  } catch (...) {
    for (Buffer* const buffer : memory) impl.session.abandon(std::move(*buffer));
    throw;
  }
}

/// In pieces that MPI can count.
void broadcast_bytes(const Communicator::Impl& impl, Buffer& bytes, int root, const Waiting& waiting) {
  const std::int64_t call_bytes = impl.call_bytes;
  const auto size_bytes = static_cast<std::int64_t>(bytes.size());
  for (std::int64_t begin = 0; begin < size_bytes; begin += call_bytes) {
    const std::int64_t part = std::min(call_bytes, size_bytes - begin);
    const bool sends = impl.rank == root;
    run(impl, waiting, {&bytes}, sends ? part : 0, sends ? 0 : part, [&](MPI_Request* request) {
      return MPI_Ibcast(bytes.data() + begin, static_cast<int>(part), MPI_BYTE, root, impl.comm, request);
    });
  }
}

MPI_Op mpi_op(Reduce op) { return op == Reduce::sum ? MPI_SUM : op == Reduce::min ? MPI_MIN : MPI_MAX; }

constexpr std::int64_t magnitude = std::numeric_limits<std::int64_t>::max();

/// Whole numbers in the order of the values; NaN comes first for the smallest and last for the largest.
std::int64_t key_of(double value, Reduce op) {
  if (std::isnan(value)) return op == Reduce::min ? std::numeric_limits<std::int64_t>::min() : magnitude;
  const auto bits = std::bit_cast<std::int64_t>(value);
  return bits < 0 ? bits ^ magnitude : bits;
}
double value_of(std::int64_t key) { return std::bit_cast<double>(key < 0 ? key ^ magnitude : key); }

/// Element-wise, in place, by MPI's own reduction, since the order does not matter. Errors name `said_bytes`, or the
/// size of the values.
void reduce_in_any_order(const Communicator::Impl& impl, std::span<std::int64_t> values, Reduce op,
                         const std::string& operation, std::int64_t said_bytes = -1) {
  if (impl.size == 1 || values.empty()) return;
  Buffer mine = bytes_of(values), all(mine.size());
  const auto size_bytes = static_cast<std::int64_t>(mine.size());
  const Waiting waiting = impl.waiting(operation, said_bytes < 0 ? size_bytes : said_bytes);
  run(impl, waiting, {&mine, &all}, size_bytes, size_bytes, [&](MPI_Request* request) {
    return MPI_Iallreduce(mine.data(), all.data(), static_cast<int>(values.size()), MPI_INT64_T, mpi_op(op), impl.comm,
                          request);
  });
  std::copy(all.begin(), all.end(), std::as_writable_bytes(values).begin());
}

/// Smallest or largest, in place, with the same bits on all ranks: NaN if any rank has one; −0 is less than 0.
void extremes(const Communicator::Impl& impl, std::span<double> values, Reduce op) {
  if (impl.size == 1) return;
  std::vector<std::int64_t> keys;
  for (const double value : values) keys.push_back(key_of(value, op));
  reduce_in_any_order(impl, keys, op, "all_reduce");
  std::transform(keys.begin(), keys.end(), values.begin(), value_of);
}

/// Every rank's `mine` (the same size everywhere) by rank: at `root`, or at all ranks.
Buffer gather_equal(const Communicator::Impl& impl, Buffer mine, std::optional<int> root,
                    const std::string& operation) {
  if (impl.size == 1) return mine;
  const bool receives = impl.rank == root.value_or(impl.rank);
  ARGOSY_CHECK(mine.size() <= INT_MAX, "{} of {} bytes", operation, mine.size());
  Buffer all(receives ? mine.size() * static_cast<std::size_t>(impl.size) : 0);
  const auto size_bytes = static_cast<std::int64_t>(mine.size());
  const int count = static_cast<int>(mine.size());
  run(impl, impl.waiting(operation, size_bytes), {&mine, &all}, size_bytes, static_cast<std::int64_t>(all.size()),
      [&](MPI_Request* request) {
        return root ? MPI_Igather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, *root, impl.comm, request)
                    : MPI_Iallgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, impl.comm, request);
      });
  return all;
}

/// Sums in rank order, in place: rank 0 gathers and adds, then broadcasts the sums.
void sum_in_rank_order(const Communicator::Impl& impl, std::span<double> values) {
  if (impl.size == 1 || values.empty()) return;
  Buffer mine = bytes_of(values);
  const Buffer all = gather_equal(impl, mine, 0, "all_reduce");
  if (impl.rank == 0) {
    std::vector<double> terms(all.size() / sizeof(double));
    std::copy(all.begin(), all.end(), std::as_writable_bytes(std::span{terms}).begin());
    for (std::size_t i = 0; i < values.size(); ++i) {
      double sum = terms[i];
      for (std::size_t at = i + values.size(); at < terms.size(); at += values.size()) sum += terms[at];
      values[i] = sum;
    }
    mine = bytes_of(values);
  }
  broadcast_bytes(impl, mine, 0, impl.waiting("all_reduce", static_cast<std::int64_t>(mine.size())));
  std::copy(mine.begin(), mine.end(), std::as_writable_bytes(values).begin());
}

/// Texts of any size, by rank: at `root` (nothing elsewhere), or at all ranks. In pieces that MPI can count.
std::vector<std::string> gather_texts(const Communicator::Impl& impl, const std::string& text,
                                      std::optional<int> root) {
  if (impl.size == 1) return {text};
  const auto ranks = static_cast<std::size_t>(impl.size);
  const std::string operation = root ? "gather of texts" : "all_gather of texts";
  // The longest text tells every rank the number of calls; only receivers need the sizes.
  const auto own_bytes = static_cast<std::int64_t>(text.size());
  std::array<std::int64_t, 1> longest{own_bytes};
  reduce_in_any_order(impl, longest, Reduce::max, operation);
  const Buffer gathered = gather_equal(impl, bytes_of(std::span{&own_bytes, 1}), root, operation);
  std::vector<std::int64_t> sizes(gathered.size() / sizeof(std::int64_t));
  std::copy(gathered.begin(), gathered.end(), std::as_writable_bytes(std::span{sizes}).begin());

  const std::int64_t piece_bytes = std::max<std::int64_t>(impl.call_bytes / impl.size, 1);
  std::vector<std::string> texts(sizes.size());
  for (std::int64_t begin = 0; begin < longest[0]; begin += piece_bytes) {
    const auto piece_of = [&](std::int64_t size_bytes) {
      return static_cast<int>(std::clamp<std::int64_t>(size_bytes - begin, 0, piece_bytes));
    };
    Buffer layout(2 * sizes.size() * sizeof(int));  // counts, then where they begin
    int* const counts = reinterpret_cast<int*>(layout.data());
    int* const begins = counts + sizes.size();
    std::int64_t total = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      counts[i] = piece_of(sizes[i]);
      begins[i] = static_cast<int>(total);
      total += counts[i];
    }
    const int own = piece_of(own_bytes);
    Buffer mine = bytes_of(as_bytes(
        std::string_view{text}.substr(own > 0 ? static_cast<std::size_t>(begin) : 0, static_cast<std::size_t>(own))));
    Buffer all(static_cast<std::size_t>(total));
    run(impl, impl.waiting(operation, own_bytes), {&mine, &all, &layout}, own, total, [&](MPI_Request* request) {
      return root ? MPI_Igatherv(mine.data(), own, MPI_BYTE, all.data(), counts, begins, MPI_BYTE, *root, impl.comm,
                                 request)
                  : MPI_Iallgatherv(mine.data(), own, MPI_BYTE, all.data(), counts, begins, MPI_BYTE, impl.comm,
                                    request);
    });
    for (std::size_t i = 0; i < sizes.size(); ++i)
      texts[i].append(reinterpret_cast<const char*>(all.data()) + begins[i], static_cast<std::size_t>(counts[i]));
  }
  ARGOSY_CHECK(texts.empty() || texts.size() == ranks, "{} texts", texts.size());
  return texts;
}

}  // namespace

void Communicator::all_reduce(std::span<double> values, Reduce op) const {
  op == Reduce::sum ? sum_in_rank_order(*impl_, values) : extremes(*impl_, values, op);
}
void Communicator::all_reduce(std::span<std::int64_t> values, Reduce op) const {
  reduce_in_any_order(*impl_, values, op, "all_reduce");
}

std::string Communicator::broadcast(std::string text, int root) const {
  if (size() == 1) return text;
  // A reduction, not a broadcast: no rank returns before all ranks have called.
  std::array<std::int64_t, 1> size_bytes{rank() == root ? static_cast<std::int64_t>(text.size()) : 0};
  reduce_in_any_order(*impl_, size_bytes, Reduce::max, "broadcast");
  Buffer buffer = rank() == root ? bytes_of(as_bytes(std::string_view{text})) : Buffer();
  buffer.resize(static_cast<std::size_t>(size_bytes[0]));
  broadcast_bytes(*impl_, buffer, root, impl_->waiting("broadcast", size_bytes[0]));
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

std::vector<std::string> Communicator::all_gather(const std::string& text) const {
  return gather_texts(*impl_, text, std::nullopt);
}

std::vector<std::string> Communicator::gather(const std::string& text, int root) const {
  return gather_texts(*impl_, text, root);
}

std::vector<std::byte> Communicator::all_gather_bytes(Bytes mine) const {
  return gather_equal(*impl_, bytes_of(mine), std::nullopt, "all_gather");
}

void Communicator::barrier(std::string_view name) const {
  if (size() == 1) return;
  // A hash and its complement: if the largest of both belong to one hash, all ranks have that hash.
  const auto hash = std::bit_cast<std::int64_t>(hash64(name));
  std::array<std::int64_t, 2> largest{hash, ~hash};
  reduce_in_any_order(*impl_, largest, Reduce::max, fmt::format("barrier \"{}\"", name), sizeof hash);
  if (largest[0] == ~largest[1]) return;
  // All ranks know that the names differ, so all of them come here.
  const Odd odd = odd_one(*this, std::string(name)).value();
  const std::string got =
      fmt::format("rank {} in \"{}\", rank {} in \"{}\"", impl_->world_ranks[static_cast<std::size_t>(odd.rank) - 1],
                  odd.first, impl_->world_ranks[static_cast<std::size_t>(odd.rank)], odd.other);
  throw_claim(Fault::comm, fmt::format("ranks wait in different barriers: {}", got), "", "all ranks in one barrier",
              got, "this is a defect of Argosy, please report it");
}

}  // namespace argosy::comm
