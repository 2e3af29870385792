#include "comm/comm.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "comm/session.hpp"
#include "core/hash.hpp"

namespace argosy::comm {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Waits for a collective whose buffers live here, so that they outlive an operation that is given up on.
void wait_for(const Communicator::Impl& impl, MPI_Request request, const Waiting& waiting, std::vector<std::byte>& sent,
              std::vector<std::byte>& received) {
  try {
    impl.wait({&request, 1}, waiting);
  } catch (...) {
    impl.session.abandon(std::move(sent));
    impl.session.abandon(std::move(received));
    throw;
  }
}

/// Every rank's `mine` (the same size everywhere), by rank.
std::vector<std::byte> gather_equal(const Communicator::Impl& impl, std::vector<std::byte> mine,
                                    const std::string& operation) {
  if (impl.size == 1) return mine;
  ARGOSY_CHECK(mine.size() <= INT_MAX, "{} of {} bytes", operation, mine.size());
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(impl.size));
  const Waiting waiting = impl.waiting(operation, static_cast<std::int64_t>(mine.size()));
  const int count = static_cast<int>(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  impl.session.run(waiting, [&] {
    return MPI_Iallgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, impl.comm, &request);
  });
  wait_for(impl, request, waiting, mine, all);
  return all;
}

template <class T>
T combined(T a, T b, Reduce op) {
  switch (op) {
    case Reduce::sum:
      return a + b;
    case Reduce::min:
      return b < a ? b : a;
    case Reduce::max:
      return a < b ? b : a;
  }
  return a;
}

/// Control values are few, so all ranks gather them and combine in rank order: the same bits everywhere.
template <class T>
void reduce_in_rank_order(const Communicator::Impl& impl, std::span<T> values, Reduce op) {
  if (impl.size == 1 || values.empty()) return;
  const Bytes mine = std::as_bytes(values);
  const std::vector<std::byte> all = gather_equal(impl, {mine.begin(), mine.end()}, "all_reduce");
  const std::size_t n = values.size();
  std::vector<T> terms(n * static_cast<std::size_t>(impl.size));
  std::copy(all.begin(), all.end(), std::as_writable_bytes(std::span{terms}).begin());
  for (std::size_t i = 0; i < n; ++i) {
    T result = terms[i];
    for (std::size_t at = i + n; at < terms.size(); at += n) result = combined(result, terms[at], op);
    values[i] = result;
  }
}

int count_of(std::size_t size_bytes) {
  ARGOSY_CHECK(size_bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()), "{} bytes of control traffic",
               size_bytes);
  return static_cast<int>(size_bytes);
}

struct Verdict {
  Fault fault = Fault::internal;
  Facts facts;
};

std::string encoded(const Verdict& verdict) {
  std::string text(1, static_cast<char>('a' + static_cast<int>(verdict.fault)));
  for (const std::string* part :
       {&verdict.facts.wanted, &verdict.facts.got, &verdict.facts.where, &verdict.facts.remedy}) {
    text += *part;
    text += '\0';
  }
  return text;
}

Verdict verdict_of(const std::string& text) {
  Verdict verdict{.fault = static_cast<Fault>(text.at(0) - 'a'), .facts = {}};
  std::size_t at = 1;
  for (std::string* part : {&verdict.facts.wanted, &verdict.facts.got, &verdict.facts.where, &verdict.facts.remedy}) {
    const std::size_t end = text.find('\0', at);
    *part = text.substr(at, end - at);
    at = end + 1;
  }
  return verdict;
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const noexcept { return impl_->rank; }
int Communicator::size() const noexcept { return impl_->size; }

void Communicator::all_reduce(std::span<double> values, Reduce op) const { reduce_in_rank_order(*impl_, values, op); }
void Communicator::all_reduce(std::span<std::int64_t> values, Reduce op) const {
  reduce_in_rank_order(*impl_, values, op);
}

std::string Communicator::broadcast(std::string text, int root) const {
  if (size() == 1) return text;
  std::array<std::int64_t, 1> size_bytes{rank() == root ? static_cast<std::int64_t>(text.size()) : 0};
  all_reduce(std::span<std::int64_t>{size_bytes}, Reduce::max);
  std::vector<std::byte> buffer = bytes_of(text), none;
  buffer.resize(static_cast<std::size_t>(size_bytes[0]));
  const Waiting waiting = impl_->waiting("broadcast", size_bytes[0]);
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = count_of(buffer.size());
  impl_->session.run(waiting, [&] { return MPI_Ibcast(buffer.data(), count, MPI_BYTE, root, impl_->comm, &request); });
  wait_for(*impl_, request, waiting, buffer, none);
  return text_of(buffer);
}

std::vector<std::string> Communicator::all_gather(const std::string& text) const {
  if (size() == 1) return {text};
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> sizes(ranks, 0);
  sizes[static_cast<std::size_t>(rank())] = static_cast<std::int64_t>(text.size());
  all_reduce(std::span<std::int64_t>{sizes});
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  (void)count_of(static_cast<std::size_t>(total));
  const std::vector<int> counts(sizes.begin(), sizes.end());
  std::vector<int> begins(ranks, 0);
  std::partial_sum(counts.begin(), counts.end() - 1, begins.begin() + 1);

  std::vector<std::byte> mine = bytes_of(text), all(static_cast<std::size_t>(total));
  const Waiting waiting = impl_->waiting("all_gather of texts", total);
  MPI_Request request = MPI_REQUEST_NULL;
  impl_->session.run(waiting, [&] {
    return MPI_Iallgatherv(mine.data(), count_of(mine.size()), MPI_BYTE, all.data(), counts.data(), begins.data(),
                           MPI_BYTE, impl_->comm, &request);
  });
  wait_for(*impl_, request, waiting, mine, all);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < ranks; ++i) {
    texts.push_back(
        text_of(Bytes{all}.subspan(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(counts[i]))));
  }
  return texts;
}

void Communicator::barrier(std::string_view name) const {
  if (size() == 1) return;
  const auto hash = std::bit_cast<std::array<std::byte, 8>>(hash64(name));
  const std::vector<std::byte> hashes =
      gather_equal(*impl_, {hash.begin(), hash.end()}, fmt::format("barrier \"{}\"", name));
  const auto differs = [&](std::size_t rank) {
    return !std::equal(hash.begin(), hash.end(), hashes.begin() + static_cast<std::ptrdiff_t>(rank * 8));
  };
  bool common = true;
  for (std::size_t other = 0; other < static_cast<std::size_t>(size()); ++other) common = common && !differs(other);
  if (common) return;
  // Not common is known to all ranks, so all of them come here.
  std::string got;
  const std::vector<std::string> names = all_gather(std::string(name));
  for (std::size_t i = 0; i < names.size(); ++i) {
    got += fmt::format("{}rank {} in \"{}\"", i == 0 ? "" : ", ", impl_->world_ranks[i], names[i]);
  }
  throw Error{Fault::comm,
              {.wanted = "all ranks in one barrier",
               .got = got,
               .where = "",
               .remedy = "ranks have taken different ways; this is a defect of Argosy, please report it"}};
}

Communicator Communicator::split(int color, int key) const {
  ARGOSY_CHECK(color >= 0, "color {}", color);
  return Communicator{impl_->split(color, key)};
}

Communicator Communicator::duplicate() const { return Communicator{impl_->duplicate()}; }

void Communicator::configure(const CommConfig& config) const {
  if (std::getenv(Session::timeout_variable) == nullptr) impl_->session.timeout_s = config.timeout_s;
}

void agree(const Communicator& world, const std::function<void()>& body) {
  std::optional<Verdict> mine;
  try {
    std::optional<Session::Attendant> attendant;
    if (world.size() > 1) attendant.emplace(world.impl().session);
    body();
  } catch (const Error& error) {
    if (error.fault() == Fault::comm || world.size() == 1) throw;
    mine = {error.fault(), error.facts()};
  } catch (const std::exception& error) {
    mine = {Fault::internal, {.wanted = "", .got = error.what(), .where = "", .remedy = ""}};
  }
  std::array<std::int64_t, 1> first{mine ? world.rank() : world.size()};
  world.all_reduce(std::span<std::int64_t>{first}, Reduce::min);
  if (first[0] == world.size()) return;
  const int failing = static_cast<int>(first[0]);
  Verdict common = verdict_of(world.broadcast(mine ? encoded(*mine) : "", failing));
  if (world.size() > 1) {
    common.facts.where += fmt::format("{}rank {}", common.facts.where.empty() ? "" : ", ", failing);
  }
  throw Error{common.fault, common.facts};
}

bool any_of(const Communicator& world, bool value) {
  std::array<std::int64_t, 1> any{value ? 1 : 0};
  world.all_reduce(std::span<std::int64_t>{any}, Reduce::max);
  return any[0] != 0;
}

}  // namespace argosy::comm
