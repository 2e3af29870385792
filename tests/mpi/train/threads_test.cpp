#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "kernels/gemm.hpp"
#include "mpi/train/material.hpp"

namespace argosy::test {
namespace {

/// OMP_NUM_THREADS of this process, or none, while it lives.
class AskedThreads {
 public:
  explicit AskedThreads(const char* count) {
    if (const char* was = std::getenv(name)) was_ = was;
    count == nullptr ? unsetenv(name) : setenv(name, count, 1);
  }
  ~AskedThreads() { was_ ? setenv(name, was_->c_str(), 1) : unsetenv(name); }
  AskedThreads(const AskedThreads&) = delete;
  AskedThreads& operator=(const AskedThreads&) = delete;

 private:
  static constexpr const char* name = "OMP_NUM_THREADS";
  std::optional<std::string> was_;
};

TEST(Threads, OfARunAreKeptUnlessItIsAskedToTakeOthers) {
  const int before = at::get_num_threads();
  const SharedFolder folder;
  plan::RunConfig of_run = Material::get().config(folder / "run");
  of_run.schedule.length.count = 12;
  const auto threads_of_step = [&](std::int64_t step) {  // the run stops after the next one
    int threads = 0;
    const train::TrainReport report =
        train_run(of_run, {.after_step = [&](const train::RunState& state, const train::StepResult&) {
                    threads = at::get_num_threads();
                    if (state.step == step) std::raise(SIGTERM);
                  }});
    EXPECT_EQ(report.exit, Exit::stopped);
    return threads;
  };
  struct Case {
    const char* asked;
    std::int64_t step;
    int taken;
  };
  for (const Case& each : {Case{"3", 1, 3}, {nullptr, 3, 3}, {"2", 5, 2}}) {
    const AskedThreads asked{each.asked};
    EXPECT_EQ(threads_of_step(each.step), each.taken) << each.step;
  }
  const checkpoint::Reader reader{Files::system(), Path(of_run.run_dir) / "checkpoints/000000006"};
  EXPECT_EQ(reader.sections().rng.at("threads"), 2);
  EXPECT_EQ(reader.sections().rng.at("instructions").as_string(), kernels::cpu_instructions());
  const std::string history = config::text_of(reader.sections().history, false);
  EXPECT_NE(history.find("OMP_NUM_THREADS: 2, was 3"), std::string::npos) << history;
  at::set_num_threads(before);
}

}  // namespace
}  // namespace argosy::test
