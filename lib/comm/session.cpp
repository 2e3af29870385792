#include "comm/session.hpp"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "core/clock.hpp"

namespace argosy::comm {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int spins = 64;               // tests in a row before the core is offered to others
constexpr double sleep_after_s = 0.05;  // a wait this long is no longer about latency
constexpr double sleep_s = 50e-6;
constexpr double attend_every_s = 0.01;  // how often a waiting rank looks for questions
constexpr int answer_rounds = 40;  // looks for answers, at least: after a pause of all processes, time says nothing
constexpr double attendant_every_s = 0.05;
constexpr double turn_after_s = 1;  // what a round needs beyond the grace until all members know the result
constexpr int question = 1, answer = 2, wait_on = 3, end_all = 4;

/// Small enough to be sent with the message envelope, so a receive never waits.
struct Notice {
  int kind = 0;
  std::array<char, 60> operation{};
  std::array<char, 448> got{};  // of `end_all`; other kinds are sent without

  [[nodiscard]] int sent_bytes() const {
    return static_cast<int>(kind == end_all ? sizeof(Notice) : sizeof(Notice) - sizeof got);
  }
};

/// Whether `operation`, cut to the length a notice holds, is the one of `waiting`.
bool is_same(const std::string& operation, const Waiting& waiting) {
  return operation == waiting.operation.substr(0, Notice{}.operation.size() - 1);
}

bool waits_in(const std::vector<std::string>& doing, const Waiting& waiting) {
  return std::ranges::any_of(doing, [&](const std::string& operation) { return is_same(operation, waiting); });
}

constexpr const char* all_wait = "all ranks wait in it";

[[noreturn]] void give_up(const Waiting& waiting, const std::string& got, double waited_s) {
  const std::string remedy =
      got == all_wait ? "check the network between the nodes" : "look for the cause on these ranks";
  throw failure(waiting, fmt::format("end within {:.3g} s", waited_s), got,
                remedy + " (comm.timeout_s sets the limit)");
}

}  // namespace

Error failure(const Waiting& waiting, const std::string& wanted, const std::string& got, const std::string& remedy) {
  const std::string operation = fmt::format("{} of {} bytes", waiting.operation, waiting.size_bytes);
  const std::string place = waiting.step >= 0 ? fmt::format("step {}", waiting.step) : "";
  return Error{Fault::comm,
               {.sentence = fmt::format("{}{}{} did not {}: {}; {}", place, place.empty() ? "" : ": ", operation,
                                        wanted, got, remedy),
                .wanted = fmt::format("{} to {}", operation, wanted),
                .got = got,
                .where = place,
                .remedy = remedy}};
}

/// While it lives, a thread of this rank waits for `waiting`.
struct Session::Listed {
  Listed(Session& of, const Waiting& what) : session(of), waiting(&what) {
    const std::lock_guard lock(session.mutex);
    session.waits_.push_back(waiting);
  }
  ~Listed() {
    const std::lock_guard lock(session.mutex);
    std::erase(session.waits_, waiting);
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

  Session& session;
  const Waiting* waiting;
};

std::optional<Error> Session::cut_short() {
  if (in_mpi_now == nullptr) return std::nullopt;
  return failure(*in_mpi_now, "end", "the MPI library aborted, as it does when another rank has died",
                 "look for the rank that ended first (a killed rank logs nothing)");
}

struct Session::Outgoing {
  Notice notice;
  MPI_Request request = MPI_REQUEST_NULL;
};

Session::Session(int& argc, char**& argv) {
  int provided = MPI_THREAD_SINGLE;
  const int result = MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  if (result != MPI_SUCCESS || provided < MPI_THREAD_SERIALIZED) {
    const std::string got = result != MPI_SUCCESS ? "an error" : fmt::format("level {}", provided);
    throw_claim(Fault::comm, fmt::format("MPI_Init_thread returned {}, not thread level SERIALIZED", got),
                "MPI_Init_thread", "MPI with thread level SERIALIZED", got,
                "build against MPICH, and start with its mpiexec or with srun --mpi=pmi2");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &watch_);
  MPI_Comm_rank(MPI_COMM_WORLD, &self_);
  const char* const said = std::getenv(timeout_variable);
  const double said_s = said == nullptr ? 0 : std::strtod(said, nullptr);
  if (said_s >= least_timeout_s && std::isfinite(said_s)) timeout_s = said_s;  // run_main() refuses any other
}

Session::~Session() {
  answer_peers();  // receives late answers, of which MPI would warn
  MPI_Finalize();
}

void Session::check(int mpi_result, const Waiting& waiting) const {
  if (mpi_result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(mpi_result, text.data(), &length);
  throw failure(waiting, "succeed", {text.data(), static_cast<std::size_t>(length)},
                "look for the rank that failed first");
}

void Session::abandon(std::vector<std::byte> memory) {
  const std::lock_guard lock(mutex);
  abandoned_.push_back(std::move(memory));
}

void Session::count(std::int64_t sent_bytes, std::int64_t received_bytes) noexcept {
  ++calls_;
  sent_bytes_ += sent_bytes;
  received_bytes_ += received_bytes;
}

ControlTraffic Session::control_traffic() const noexcept {
  return {.calls = calls_, .sent_bytes = sent_bytes_, .received_bytes = received_bytes_};
}

void Session::wait(std::span<MPI_Request> requests, const Waiting& waiting) {
  const Inside inside(waiting);
  const Listed listed(*this, waiting);
  double limit_s = timeout_s;
  const auto start = std::chrono::steady_clock::now();
  const double grace_s = std::min(2.0, limit_s / 4), attend_after_s = std::min(0.25, limit_s / 8);
  double attended_s = 0;
  std::optional<double> turn_s;  // how much later than the first round this rank asks
  std::optional<TimePoint> asked;
  int looked = 0;
  for (std::int64_t tests = 0;; ++tests) {
    int complete = 0;
    {
      const std::lock_guard lock(mutex);
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, MPI_STATUSES_IGNORE), waiting);
    }
    if (complete != 0) return;
    if (tests < spins) continue;
    if (waiting.abandoned != nullptr && *waiting.abandoned) {
      throw_claim(Fault::comm, waiting.operation + " was abandoned, because communication was shut down", "",
                  waiting.operation + " to end", "the end of its collectives", "look for the first error in the log");
    }
    sched_yield();
    const auto now = std::chrono::steady_clock::now();
    const double waited_s = Seconds{now - start}.count();
    if (waited_s < attend_after_s) {
      if (waited_s > sleep_after_s) std::this_thread::sleep_for(Seconds{sleep_s});
      continue;
    }
    if (waited_s - attended_s < attend_every_s) {
      std::this_thread::sleep_for(Seconds{sleep_s});
      continue;
    }
    attended_s = waited_s;
    answer_peers();
    const auto go_on = [&] {
      limit_s = waited_s + timeout_s;
      asked.reset();
    };
    if (const auto told_by_others = take_judgement(waiting, start)) {
      if (told_by_others->ends) give_up(waiting, told_by_others->got, waited_s);
      go_on();
    }
    if (waited_s <= limit_s - grace_s) continue;
    if (!turn_s) turn_s = turn_of(waiting) * (grace_s + turn_after_s);
    if (!asked && waited_s > limit_s - grace_s + *turn_s) {
      asked = now;
      looked = 0;
      for (const int rank : waiting.members) post(rank, question, waiting.operation);
    }
    if (waited_s <= limit_s + *turn_s || ++looked < answer_rounds) continue;
    if (is_worth_waiting(waiting, *asked)) {
      tell(waiting, *asked, wait_on);
      go_on();
    } else {
      const std::string got = doings_of(waiting, *asked);
      tell(waiting, *asked, end_all, got);
      give_up(waiting, got, waited_s);
    }
  }
}

int Session::turn_of(const Waiting& waiting) const {
  const auto own = std::find(waiting.members.begin(), waiting.members.end(), self_) - waiting.members.begin();
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(own / first_askers)));
}

void Session::post(int world_rank, int kind, const std::string& operation, const std::string& got) {
  const std::lock_guard lock(mutex);
  Outgoing& next = outgoing_.emplace_back();
  next.notice.kind = kind;
  operation.copy(next.notice.operation.data(), next.notice.operation.size() - 1);
  got.copy(next.notice.got.data(), next.notice.got.size() - 1);
  count(next.notice.sent_bytes(), 0);
  MPI_Isend(&next.notice, next.notice.sent_bytes(), MPI_BYTE, world_rank, 0, watch_, &next.request);
}

void Session::answer_peers() {
  {
    const std::lock_guard lock(mutex);
    outgoing_.remove_if([](Outgoing& sent) {
      int complete = 0;
      MPI_Test(&sent.request, &complete, MPI_STATUS_IGNORE);
      return complete != 0;
    });
  }
  for (;;) {
    Notice notice;
    MPI_Status status{};
    std::vector<std::string> doing;
    {
      const std::lock_guard lock(mutex);
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Improbe(MPI_ANY_SOURCE, 0, watch_, &found, &message, &status);
      if (found == 0) return;
      MPI_Mrecv(&notice, sizeof(Notice), MPI_BYTE, &message, &status);  // complete: so few bytes are there already
      count(0, notice.sent_bytes());
      const auto now = std::chrono::steady_clock::now();
      if (notice.kind == answer) last_told_[status.MPI_SOURCE][notice.operation.data()] = now;
      if (notice.kind == wait_on || notice.kind == end_all)
        judgements_[notice.operation.data()] = {notice.kind == end_all, notice.got.data(), now};
      if (notice.kind != question) continue;
      for (const Waiting* const waiting : waits_) doing.push_back(waiting->operation);
    }
    if (doing.empty()) doing.emplace_back();
    for (const std::string& operation : doing) post(status.MPI_SOURCE, answer, operation);
  }
}

void Session::tell(const Waiting& waiting, TimePoint asked, int kind, const std::string& got) {
  for (std::size_t i = static_cast<std::size_t>(first_askers); i < waiting.members.size(); ++i) {
    if (waiting.members[i] != self_ && waits_in(told(waiting.members[i], asked), waiting))
      post(waiting.members[i], kind, waiting.operation, got);
  }
}

std::optional<Session::Judgement> Session::take_judgement(const Waiting& waiting, TimePoint since) {
  const std::lock_guard lock(mutex);
  for (auto at = judgements_.begin(); at != judgements_.end(); ++at) {
    if (!is_same(at->first, waiting) || at->second.when < since) continue;
    Judgement taken = std::move(at->second);
    judgements_.erase(at);
    return taken;
  }
  return std::nullopt;
}

std::vector<std::string> Session::told(int world_rank, TimePoint since) {
  const std::lock_guard lock(mutex);
  std::vector<std::string> operations;
  for (const auto& [operation, when] : last_told_[world_rank]) {
    if (when >= since) operations.push_back(operation);
  }
  return operations;
}

bool Session::is_worth_waiting(const Waiting& waiting, TimePoint asked) {
  bool any_at_work = false;
  for (const int rank : waiting.members) {
    const std::vector<std::string> doing = told(rank, asked);
    const bool at_work = std::ranges::count(doing, std::string()) > 0;
    if (!at_work && !waits_in(doing, waiting)) return false;
    any_at_work = any_at_work || at_work;
  }
  return any_at_work;
}

std::jthread Session::attendant() {
  return std::jthread([this](const std::stop_token& stop) {
    while (!stopped_within(stop, Seconds{attendant_every_s})) {
      std::unique_lock lock(mutex);
      const bool any_waits = !waits_.empty();
      lock.unlock();
      if (!any_waits) answer_peers();
    }
  });
}

std::string Session::doings_of(const Waiting& waiting, TimePoint asked) {
  std::vector<int> silent;
  std::string elsewhere;
  for (const int rank : waiting.members) {
    const std::vector<std::string> doing = told(rank, asked);
    if (doing.empty()) silent.push_back(rank);
    if (waits_in(doing, waiting)) continue;
    for (const std::string& operation : doing) {
      elsewhere += fmt::format("{}rank {} {}{}", elsewhere.empty() ? "" : ", ", rank,
                               operation.empty() ? "is at work" : "waits in ", operation);
    }
  }
  std::set<std::string> nodes;
  for (const int rank : silent) {
    if (!hosts.empty()) nodes.insert(hosts[static_cast<std::size_t>(rank)]);
  }
  std::string got =
      silent.empty() ? ""
                     : fmt::format("no answer from rank{} {}", silent.size() == 1 ? "" : "s", fmt::join(silent, ", "));
  if (!nodes.empty()) got += fmt::format(" on {}", fmt::join(nodes, ", "));
  if (!elsewhere.empty()) got += (got.empty() ? "" : "; ") + elsewhere;
  return got.empty() ? all_wait : got;
}

Communicator::Impl::Impl(Session& of, MPI_Comm owned, std::string purpose)
    : session(of), comm(owned), purpose_(std::move(purpose)) {
  const std::lock_guard lock(session.mutex);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Group world = MPI_GROUP_NULL, mine = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Comm_group(comm, &mine);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  world_ranks.resize(ranks.size());
  MPI_Group_translate_ranks(mine, size, ranks.data(), world, world_ranks.data());
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
}

Communicator::Impl::~Impl() {
  const std::lock_guard lock(session.mutex);
  if (!given_up_) MPI_Comm_free(&comm);  // waits for nobody in MPICH
}

void Communicator::Impl::wait(std::span<MPI_Request> requests, const Waiting& what) const {
  try {
    session.wait(requests, what);
  } catch (...) {
    given_up_ = true;
    throw;
  }
}

template <class Make>
std::unique_ptr<Communicator::Impl> Communicator::Impl::made_together(const std::string& operation, Make make) const {
  const Waiting what = waiting(operation, 0);
  complete(what, [&](MPI_Request* request) { return MPI_Ibarrier(comm, request); });
  MPI_Comm made = MPI_COMM_NULL;
  session.run(what, [&] { return make(&made); });
  return made == MPI_COMM_NULL ? nullptr : std::make_unique<Impl>(session, made, purpose_);
}

std::unique_ptr<Communicator::Impl> Communicator::Impl::duplicate() const {
  MPI_Comm made = MPI_COMM_NULL;
  complete(waiting("duplicate of a communicator", 0),
           [&](MPI_Request* request) { return MPI_Comm_idup(comm, &made, request); });
  return std::make_unique<Impl>(session, made, purpose_);
}

std::unique_ptr<Communicator::Impl> Communicator::Impl::split(int color, int key) const {
  return made_together(
      "split", [&](MPI_Comm* made) { return MPI_Comm_split(comm, color < 0 ? MPI_UNDEFINED : color, key, made); });
}

std::unique_ptr<Communicator::Impl> Communicator::Impl::split_by_memory() const {
  return made_together("split by shared memory", [&](MPI_Comm* made) {
    return MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, made);
  });
}

}  // namespace argosy::comm
