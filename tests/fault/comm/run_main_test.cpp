// How runs end, seen from outside: exit file, sentences, and that nobody hangs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>

#include "core/file.hpp"

namespace argosy {
namespace {

using testing::AllOf, testing::AnyOf, testing::ContainsRegex, testing::HasSubstr, testing::Not;

struct Ended {
  int code = 0;           // of the launcher; -1 when it had to be killed
  std::string exit_file;  // "" when there is none
  std::string output;
  double seconds = 0;
};

class Run : public testing::Test {
 protected:
  void SetUp() override { files_.make_folders(folder_); }
  void TearDown() override { files_.remove_tree(folder_); }

  /// Runs `command`; killed after a minute. `exit_name` tells runs at the same time apart.
  Ended run(const std::string& command, const std::string& exit_name = "exit") const {
    const Path exit_file = folder_ / exit_name;
    const std::string line =
        fmt::format("ARGOSY_EXIT_FILE={} timeout -k 1 60 {} 2>&1 </dev/null", exit_file.string(), command);
    const auto start = std::chrono::steady_clock::now();
    FILE* const pipe = popen(line.c_str(), "r");
    Ended ended;
    std::array<char, 4096> part{};
    for (std::size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) ended.output.append(part.data(), n);
    const int status = pclose(pipe);
    ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ended.code = WIFEXITED(status) && WEXITSTATUS(status) != 124 ? WEXITSTATUS(status) : -1;
    EXPECT_NE(ended.code, -1) << line;
    EXPECT_LT(ended.seconds, 50) << line;
    if (files_.exists(exit_file)) ended.exit_file = files_.read_text(exit_file);
    return ended;
  }
  Ended run_ranks(int ranks, const std::string& how, const std::string& operation = "nothing") const {
    return run(fmt::format("{} -n {} {} {} {}", mpiexec(), ranks, ENDING, how, operation), how);
  }
  /// A shell between launcher and rank outlives the rank, as under srun without --kill-on-bad-exit.
  Ended run_ranks_unseen(int ranks, const std::string& how, const std::string& operation) const {
    return run(fmt::format("{} -n {} sh -c '{} {} {}; sleep 40'", mpiexec(), ranks, ENDING, how, operation), how);
  }
  static std::string mpiexec() {
    const char* const name = std::getenv("ARGOSY_MPIEXEC");
    return name == nullptr ? "mpiexec.mpich" : name;
  }

  const Files files_ = Files::system();
  const Path folder_ = Path(testing::TempDir()) / fmt::format("run_main.{}", getpid());
};

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// The last rank is called silent; on a crowded machine another may be as well.
auto names_the_last_of(int ranks) {
  return ContainsRegex(fmt::format("no answer from ranks? ([0-9], )*{}", ranks - 1));
}

TEST_F(Run, ComputesWithoutDenormalsInAllThreads) { EXPECT_THAT(run_ranks(1, "computes").output, HasSubstr("none\n")); }

TEST_F(Run, EndsWithZeroTheStepAndOneResultLine) {
  for (const int ranks : {1, 3}) {
    const Ended ended = run_ranks(ranks, "well");
    EXPECT_EQ(std::tuple(ended.code, ended.exit_file), std::tuple(0, "0 12\n"));
    EXPECT_EQ(
        ended.output,
        fmt::format("result {{\"tool\":\"argosy_ending\",\"status\":\"ok\",\"ranks\":{},\"contexts\":0}}\n", ranks));
  }
}

TEST_F(Run, StartsWithoutALauncherAsAWorldOfOne) {
  const Ended ended = run(fmt::format("{} well", ENDING));
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.output, HasSubstr("\"ranks\":1"));
}

TEST_F(Run, ASignalOnOneRankStopsAllWith75) { EXPECT_EQ(run_ranks(3, "is_told_to_stop").exit_file, "75 12\n"); }

TEST_F(Run, StoppedOnOneRankIsTheCommonCode) { EXPECT_EQ(run_ranks(3, "stops_alone").exit_file, "75 12\n"); }

TEST_F(Run, AnErrorOfAllRanksIsSaidOnceAndEndsInOrder) {
  for (const char* const how : {"throws_everywhere", "agrees"}) {
    const Ended ended = run_ranks(3, how);
    EXPECT_EQ(ended.exit_file, "3 12\n") << how;
    EXPECT_EQ(count(ended.output, "expected text, got noise"), 2) << ended.output;  // the sentence, the result line
    EXPECT_THAT(ended.output, AllOf(HasSubstr("result {\"tool\":\"argosy_ending\",\"status\":\"failed\",\"code\":3,"),
                                    Not(HasSubstr("MPI_Abort"))));
  }
}

TEST_F(Run, AnUnexpectedExceptionIsInternal) {
  const Ended ended = run_ranks(1, "fails_unexpectedly");
  EXPECT_EQ(std::tuple(ended.code, ended.exit_file), std::tuple(70, "70 12\n"));
  EXPECT_THAT(ended.output, HasSubstr("out of cheese"));
}

/// An operation, and how ranks that wait in it call it: four ranks on two nodes.
struct InOperation {
  const char* name;
  const char* said;
};

class RunInOperation : public Run, public testing::WithParamInterface<InOperation> {};

TEST_P(RunInOperation, ARankThatThrowsExitsStallsOrStraysEndsAllInTime) {
  const InOperation operation = GetParam();
  std::map<std::string, std::future<Ended>> runs;  // at once, as they mostly wait
  for (const char* const how : {"throws", "exits", "stalls", "strays"}) {
    runs[how] = std::async(std::launch::async, [this, how, operation] {
      return how == std::string("exits") ? run_ranks_unseen(4, how, operation.name) : run_ranks(4, how, operation.name);
    });
  }
  std::map<std::string, Ended> ended;
  for (auto& [how, run] : runs) {
    ended[how] = run.get();
    EXPECT_NE(ended[how].code, 0) << how;
    EXPECT_EQ(ended[how].exit_file, how == "throws" ? "3 12\n" : "5 12\n") << how << ended[how].output;
  }
  EXPECT_THAT(ended["throws"].output, HasSubstr("expected text, got noise"));
  for (const char* const how : {"exits", "stalls"})
    EXPECT_THAT(ended[how].output, AllOf(ContainsRegex(operation.said), HasSubstr("step 7: "), names_the_last_of(4)));
  if (operation.name == std::string("agree")) return;  // its messages are as long as a barrier's
  EXPECT_THAT(ended["strays"].output, AnyOf(HasSubstr("waits in barrier \"elsewhere\""),
                                            ContainsRegex("waits in (all_reduce|all_gather|reduce_scatter)"),
                                            HasSubstr("rank 2 in \"operation\", rank 3 in \"elsewhere\"")));
}

INSTANTIATE_TEST_SUITE_P(
    All, RunInOperation,
    testing::Values(InOperation{"barrier", "barrier \"operation\" of 8 bytes"},
                    InOperation{"agree", "all_reduce of 8 bytes"}, InOperation{"all_reduce", "all_reduce of 8 bytes"},
                    InOperation{"reduce_scatter", "reduce_scatter (in the node|across nodes) of 4001792 bytes"},
                    InOperation{"reduce_in_node", "reduce_scatter in the node of 4001792 bytes"},
                    InOperation{"reduce_across_nodes", "reduce_scatter across nodes of 2000896 bytes"},
                    InOperation{"all_gather", "all_gather across nodes of 2000896 bytes"},
                    InOperation{"gather_across_nodes", "all_gather across nodes of 2000896 bytes"},
                    InOperation{"reduce_scatter_of_some", "reduce_scatter (in the node|across nodes) of encoder.fr of"},
                    InOperation{"all_gather_of_some", "all_gather (in the node|across nodes) of encoder.fr of"}),
    [](const auto& operation) { return std::string(operation.param.name); });

/// The same on a GPU, whose stand-in is late and waits for peers in the end of a communicator.
class RunOnGpus : public RunInOperation {
 protected:
  std::map<std::string, Ended> run_all(const std::vector<std::string>& words) const {
    std::map<std::string, std::future<Ended>> runs;
    for (const std::string& how_and_wait : words) {
      runs[how_and_wait] = std::async(std::launch::async, [this, how_and_wait] {
        const std::size_t space = how_and_wait.find(' ');
        const std::string how = how_and_wait.substr(0, space), wait = how_and_wait.substr(space + 1);
        const std::string all = fmt::format("{} {} {} {}", ENDING, how, GetParam().name, wait);
        const bool unseen = how == "exits" || how == "is_killed";
        return run(unseen ? fmt::format("{} -n 4 sh -c '{}; sleep 40'", mpiexec(), all)
                          : fmt::format("{} -n 4 {}", mpiexec(), all),
                   how + "." + wait);
      });
    }
    std::map<std::string, Ended> ended;
    for (auto& [name, run] : runs) ended[name] = run.get();
    return ended;
  }
};

TEST_P(RunOnGpus, ARankThatThrowsDiesOrStraysEndsAllInTime) {
  auto ended = run_all({"throws host", "is_killed host", "strays host", "stalls host"});
  const bool takes_longest = GetParam().name == std::string("reduce_scatter");  // until main() is given up
  ended.merge(
      run_all({"throws cuda", takes_longest ? "is_killed stuck" : "is_killed cuda", "strays cuda", "exits cuda"}));
  for (const auto& [name, run] : ended) {
    const bool throws = name.starts_with("throws");
    // The rank that strays waits in another operation, and its limit may pass first.
    const std::string other = GetParam().said[0] == 'r' ? "all_gather" : "reduce_scatter";
    const std::string said =
        name.starts_with("strays")
            ? fmt::format("{}|{} (of encoder.fr )?of 4001792 bytes did not end within 3", GetParam().said, other)
            : GetParam().said;
    EXPECT_NE(run.code, 0) << name;
    EXPECT_EQ(run.exit_file, throws ? "3 12\n" : "5 12\n") << name << run.output;
    EXPECT_THAT(run.output,
                throws ? testing::Matcher<std::string>(HasSubstr("expected text, got noise"))
                       : AllOf(ContainsRegex(said), HasSubstr("step 7: "), HasSubstr("the GPU has not finished it")))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RunOnGpus,
    testing::Values(
        InOperation{"reduce_scatter", "reduce_scatter of 4001792 bytes did not end within 3"},
        InOperation{"reduce_in_node", "reduce_scatter in the node of 4001792 bytes did not end within 3"},
        InOperation{"reduce_across_nodes", "reduce_scatter across nodes of 2000896 bytes did not end within 3"},
        InOperation{"all_gather", "all_gather of 4001792 bytes did not end within 3"},
        InOperation{"gather_across_nodes", "all_gather across nodes of 2000896 bytes did not end within 3"},
        InOperation{"reduce_scatter_of_some", "reduce_scatter of encoder.fr of 4001792 bytes did not end within 3"}),
    [](const auto& operation) { return std::string(operation.param.name); });

TEST_F(Run, OnGpusEveryRankOpensOneContextAndEndsInOrder) {
  const Ended ended = run(fmt::format("{} -n 8 {} well all_gather cuda", mpiexec(), ENDING));
  EXPECT_EQ(ended.exit_file, "0 12\n") << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("\"contexts\":1}"));
}

TEST_F(Run, AStandstillOfAllRanksPastTheDeadlineEndsNothing) {
  const Ended ended = run_ranks(3, "stands_still", "reduce_scatter");
  EXPECT_EQ(ended.exit_file, "0 12\n") << ended.output;
  EXPECT_GT(ended.seconds, 3);
}

TEST_F(Run, AKilledRankEndsTheRunAtOnceUnderMpiexec) {
  const Ended ended = run_ranks(3, "is_killed", "reduce_scatter");
  EXPECT_NE(ended.code, 0);
}

TEST_F(Run, AKilledRankTheLauncherDoesNotMissIsFoundByTheDeadline) {
  const Ended ended = run_ranks_unseen(3, "is_killed", "reduce_scatter");
  EXPECT_EQ(ended.exit_file, "5 12\n");
  EXPECT_THAT(ended.output, AllOf(ContainsRegex(" of 40[0-9]* bytes"), HasSubstr("step 7: "), names_the_last_of(3)));
}

TEST_F(Run, ARankThatMpiAbortsSaysSoWithCode5) {
  const Ended ended = run_ranks(2, "is_aborted_waiting", "reduce_in_node");
  EXPECT_NE(ended.code, 0);
  EXPECT_EQ(ended.exit_file, "5 12\n");
  EXPECT_THAT(ended.output, AllOf(HasSubstr("step 7: reduce_scatter in the node of 4001792 bytes did not end: the MPI "
                                            "library aborted, as it does when another rank has died"),
                                  HasSubstr("\"status\":\"failed\",\"code\":5,")));
}

TEST_F(Run, AnAbortOfOurOwnIsNotCalledOneOfMpi) {
  const Ended ended = run_ranks(1, "aborts", "reduce_scatter");
  EXPECT_NE(ended.code, 0);
  EXPECT_EQ(ended.exit_file, "");
  EXPECT_THAT(ended.output, Not(HasSubstr("MPI library")));
}

TEST_F(Run, AWorldOfAnotherSizeThanExpectedIsRefused) {
  setenv("ARGOSY_EXPECT_RANKS", "4", 1);
  const Ended ended = run_ranks(2, "well");
  unsetenv("ARGOSY_EXPECT_RANKS");
  EXPECT_EQ(ended.exit_file, "2 0\n");
  EXPECT_THAT(ended.output, AllOf(HasSubstr("asks for 4 ranks"), HasSubstr("MPI started 2"), HasSubstr("--mpi=pmi2")));
}

TEST_F(Run, CopiesStartedByAnotherMpiAreRefusedByTheFirst) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const Ended first = run(fmt::format("env OMPI_COMM_WORLD_RANK=0 {} well", ENDING));
  const Ended second = run(fmt::format("env OMPI_COMM_WORLD_RANK=1 {} well", ENDING));
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(first.code, 2);
  EXPECT_THAT(first.output, HasSubstr("mpiexec.mpich"));
  EXPECT_EQ(std::tuple(second.code, second.output), std::tuple(2, ""));
}

TEST_F(Run, WhatCannotBePrintedIsCode4OfAllRanks) {
  for (const int ranks : {1, 3}) {
    for (const auto& [to, why] : {std::pair{">/dev/full", "ENOSPC"}, std::pair{">&-", "EBADF"}}) {
      const Ended ended = run(fmt::format("{} -n {} sh -c 'exec {} prints {}'", mpiexec(), ranks, ENDING, to));
      EXPECT_EQ(ended.exit_file, "4 12\n") << to << ended.output;
      EXPECT_NE(ended.code, 0);
      EXPECT_THAT(ended.output, AllOf(HasSubstr("standard output cannot be written (1048577 bytes)"), HasSubstr(why)));
    }
  }
}

TEST_F(Run, AReaderThatLeavesEndsOneProcessWithoutAWordAndManyInOrder) {
  const std::string to_head = "| head -c 1 >/dev/null";
  Ended ended =
      run(fmt::format("bash -c 'env --default-signal=PIPE {} prints {}; exit ${{PIPESTATUS[0]}}'", ENDING, to_head));
  EXPECT_EQ(std::tuple(ended.code, ended.exit_file, ended.output), std::tuple(128 + SIGPIPE, "4 12\n", ""));
  ended = run(fmt::format("bash -c 'env --ignore-signal=PIPE {} prints {}; exit ${{PIPESTATUS[0]}}'", ENDING, to_head));
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.output, HasSubstr("EPIPE"));
  ended = run(fmt::format("{} -n 3 bash -c 'set -o pipefail; {} prints {}'", mpiexec(), ENDING, to_head));
  EXPECT_EQ(ended.exit_file, "4 12\n");
  EXPECT_NE(ended.code, 0);
}

TEST_F(Run, ALogThatNobodyTakesHurtsNothing) {
  for (const char* const to : {"2>/dev/full", "2>&-", "2>&1 >/dev/null | head -c 1 >/dev/null"}) {
    const Ended ended =
        run(fmt::format("bash -c 'env --default-signal=PIPE {} chatters {}; exit ${{PIPESTATUS[0]}}'", ENDING, to));
    EXPECT_EQ(ended.exit_file, "0 12\n") << to << ended.output;
    EXPECT_EQ(ended.code, 0) << to;
  }
}

TEST_F(Run, NothingTakesThePlaceOfAClosedStream) {
  const Ended ended = run(fmt::format("sh -c 'cd {} && exec {} names_streams <&- >&- 2>&-'", folder_.string(), ENDING));
  EXPECT_EQ(ended.exit_file, "0 12\n") << ended.output;
  EXPECT_EQ(files_.read_text(folder_ / "streams"), "/dev/null\n/dev/null\n/dev/null\n");
}

TEST_F(Run, AnExitFileThatCannotBeWrittenChangesNoCode) {
  for (const char* const path : {"/nowhere/exit", "/dev/full/exit", "/proc/exit", "/"})
    for (const int ranks : {1, 3}) {
      const Ended ended =
          run(fmt::format("{} -n {} env ARGOSY_EXIT_FILE={} {} stops_alone", mpiexec(), ranks, path, ENDING));
      EXPECT_EQ(ended.code, 75) << path << ended.output;
      EXPECT_EQ(count(ended.output, "exit code 75 cannot be written to the exit file"), 1) << ended.output;
    }
}

TEST_F(Run, ForgetsTheExitFileOfAnEarlierRunOfTheName) {
  (void)run(fmt::format("{} fails_unexpectedly", ENDING));
  EXPECT_EQ(run(fmt::format("{} -n 3 {} throws barrier", mpiexec(), ENDING)).exit_file, "3 12\n");
}

}  // namespace
}  // namespace argosy
