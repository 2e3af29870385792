#include "comm/launcher.hpp"

#include <gmock/gmock.h>

#include <map>

#include "support/refusal.hpp"

namespace argosy::comm {
namespace {

using testing::AllOf, testing::HasSubstr;

Variables variables(std::map<std::string, std::string> set) {
  return [set = std::move(set)](const std::string& name) -> std::optional<std::string> {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional{found->second};
  };
}

/// The error's sentence, or "fine".
std::string verdict(int world_size, std::map<std::string, std::string> set, Fault fault = Fault::usage) {
  try {
    check_world_size(world_size, variables(std::move(set)));
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), fault);
    return error.what();
  }
  return "fine";
}

TEST(Launcher, TheWorldThatWasAskedForIsFine) {
  EXPECT_EQ(verdict(1, {}), "fine");
  EXPECT_EQ(verdict(4, {{"ARGOSY_EXPECT_RANKS", "4"}, {"PMI_SIZE", "4"}}), "fine");
  EXPECT_EQ(verdict(1, {{"OMPI_COMM_WORLD_SIZE", "1"}}), "fine");
  EXPECT_EQ(verdict(1, {{"SLURM_STEP_NUM_TASKS", "1"}}), "fine");
  EXPECT_EQ(verdict(1, {{"SLURM_NTASKS", "16"}}), "fine") << "a batch shell";
  EXPECT_EQ(verdict(1, {{"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "1"}}), "fine") << "Hydra inside a job";
}

TEST(Launcher, AnotherWorldThanExpectedNamesBothSizesAndTheCause) {
  EXPECT_THAT(verdict(1, {{"ARGOSY_EXPECT_RANKS", "16"}, {"SLURM_STEP_NUM_TASKS", "16"}}),
              AllOf(HasSubstr("16 ranks"), HasSubstr("MPI started 1;"), HasSubstr("--mpi=pmi2")));
  EXPECT_THAT(verdict(3, {{"ARGOSY_EXPECT_RANKS", "4"}}), HasSubstr("MPI started 3;"));
  EXPECT_THAT(verdict(3, {{"ARGOSY_EXPECT_RANKS", "three"}}), HasSubstr("expected a number of ranks, got \"three\""));
  EXPECT_THAT(verdict(3, {{"ARGOSY_EXPECT_NODES", "two"}}), HasSubstr("expected a number of nodes, got \"two\""));
}

TEST(Launcher, AWorldOnFewerNodesThanTheJobHasIsALostNode) {
  const auto on = [](const std::string& nodes, const std::string& tasks = "6") {
    return verdict(6, {{"ARGOSY_EXPECT_NODES", "3"}, {"SLURM_STEP_NUM_NODES", nodes}, {"SLURM_STEP_NUM_TASKS", tasks}},
                   Fault::device);
  };
  EXPECT_THAT(on("2"), AllOf(HasSubstr("ranks on 2 nodes"), HasSubstr("the job has 3")));
  EXPECT_EQ(on("3"), "fine");
  EXPECT_EQ(on("2", "2"), "fine") << "Hydra's proxies";
  EXPECT_EQ(verdict(6, {{"ARGOSY_EXPECT_NODES", "3"}}), "fine") << "another launcher";
}

TEST(Launcher, CopiesOfAWorldOfOneAreRefused) {
  EXPECT_THAT(verdict(1, {{"OMPI_COMM_WORLD_SIZE", "2"}}), AllOf(HasSubstr("Open MPI"), HasSubstr("mpiexec.mpich")));
  EXPECT_THAT(verdict(1, {{"PMI_SIZE", "2"}}), HasSubstr("2 copies"));
  EXPECT_THAT(verdict(1, {{"MPI_LOCALNRANKS", "3"}}), HasSubstr("3 copies"));
  EXPECT_THAT(verdict(1, {{"MV2_COMM_WORLD_SIZE", "3"}}), HasSubstr("3 copies"));
  EXPECT_THAT(verdict(1, {{"SLURM_STEP_NUM_TASKS", "8"}}), HasSubstr("srun"));
}

TEST(Launcher, OnlyTheFirstCopySpeaks) {
  EXPECT_FALSE(is_later_copy(1, variables({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}})));
  EXPECT_TRUE(is_later_copy(1, variables({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}})));
  EXPECT_FALSE(is_later_copy(2, variables({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}})));
  EXPECT_FALSE(is_later_copy(1, variables({})));
}

TEST(Launcher, SecondsThatAreNoneAreRefused) {
  const auto seconds = [](const std::string& text) {
    return seconds_in(variables({{"SECONDS", text}}), "SECONDS", 0.1);
  };
  EXPECT_EQ(seconds_in(variables({}), "SECONDS"), std::nullopt);
  EXPECT_EQ(seconds("60"), 60);
  EXPECT_EQ(seconds("0.1"), 0.1);
  EXPECT_EQ(seconds("1e3"), 1000);
  for (const char* const wrong : {"ten", "60s", "", "0", "-1", "nan", "inf"})
    EXPECT_THAT(test::refusal(Fault::usage, [&] { static_cast<void>(seconds(wrong)); }),
                AllOf(HasSubstr("at least 0.1"), HasSubstr("environment variable SECONDS")));
}

}  // namespace
}  // namespace argosy::comm
