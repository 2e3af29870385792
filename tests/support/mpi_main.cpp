// main() of every test that runs on several ranks: starts MPI once, prints results once, failures of any rank with its
// number, and makes each test's verdict common, so that a test that fails on one rank fails on all and every rank exits
// with the same code. Operations wait a minute at most, so a rank that has left a test early costs no more than that.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "comm/environment.hpp"
#include "core/error.hpp"
#include "support/mpi_test.hpp"

namespace {

const argosy::comm::Environment* started = nullptr;

class RankListener : public testing::EmptyTestEventListener {
 public:
  explicit RankListener(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || rank_ == 0) return;  // rank 0 has the usual printer
    const char* file = result.file_name() == nullptr ? "?" : result.file_name();
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", rank_, file, result.line_number(), result.message());
  }
  void OnTestEnd(const testing::TestInfo& info) override {
    const argosy::comm::Communicator& verdicts = started->verdicts();
    std::array<std::int64_t, 2> failed{info.result()->Failed() ? 1 : 0, info.result()->Skipped() ? 1 : 0};
    verdicts.all_reduce(std::span<std::int64_t>{failed});
    if (failed[0] > 0 && !info.result()->Failed()) ADD_FAILURE() << "failed on " << failed[0] << " other rank(s)";
    if (failed[1] > 0 && failed[1] < verdicts.size()) ADD_FAILURE() << "skipped on some ranks only";
  }
  int rank_;
};

}  // namespace

const argosy::comm::Communicator& argosy::test::world() { return started->world(); }

int main(int argc, char** argv) {
  setenv("ARGOSY_COMM_TIMEOUT_S", "60", 0);
  argosy::comm::Environment environment(argc, argv);
  started = &environment;
  const int rank = environment.world().rank();
  testing::InitGoogleTest(&argc, argv);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankListener(rank));
  const int code = RUN_ALL_TESTS();
  argosy::test::forget_topologies();
  try {
    environment.finish(code);
  } catch (const argosy::Error& error) {
    std::fprintf(stderr, "[rank %d] %s\n", rank, error.what());
    environment.abort(1);
  }
  return code;
}
