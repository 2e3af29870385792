// On a machine with a GPU: whole trainings on it, with validations, resumed, and translated by apps/translate.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "core/error.hpp"
#include "kernels/plugin.hpp"
#include "mpi/train/material.hpp"
#include "support/own_process.hpp"

namespace argosy::test {
namespace {

class RunOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (comm::any_of(world(), kernels::gpu_count() == 0)) GTEST_SKIP() << "no GPU";
    kernels::open_cuda_plugin();  // LibTorch does not see a GPU later, once it has computed without
  }
  [[nodiscard]] plan::RunConfig config(const std::string& name, const std::string& device,
                                       plan::PrecisionMode mode) const {
    plan::RunConfig config = Material::get().config(folder_ / name);
    config.device = device;
    config.precision.mode = mode;
    config.checkpoint.interval.count = 2;
    return config;
  }
  /// The loss of each step, and that of each validation after them.
  [[nodiscard]] static std::vector<double> losses(const Path& run_dir) {
    std::vector<double> found;
    for (const boost::json::object& line : metrics_lines(run_dir)) {
      if (const auto* const loss = line.if_contains("loss")) found.push_back(loss->to_number<double>());
    }
    return found;
  }
  SharedFolder folder_;
};

TEST_F(RunOnGpu, TrainsAndValidatesAsTheCpuDoes) {
  (void)train_run(config("cpu", "cpu", plan::PrecisionMode::fp32));
  const train::TrainReport report = train_run(config("cuda", "cuda", plan::PrecisionMode::fp32));
  EXPECT_EQ(report.figures.at("steps"), 6);
  EXPECT_GT(report.figures.at("memory").at("state_bytes").to_number<double>(), 0);
  const std::vector<double> host = losses(folder_ / "cpu"), gpu = losses(folder_ / "cuda");
  ASSERT_GE(host.size(), 6U);
  ASSERT_EQ(gpu.size(), host.size());
  constexpr double fp32_sums_in_another_order = 1e-4;
  for (std::size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(gpu[i], host[i], fp32_sums_in_another_order * host[i]) << i;
}

TEST_F(RunOnGpu, ResumedItHasTheBitsOfAnUndisturbedRun) {
  for (const plan::PrecisionMode mode : {plan::PrecisionMode::fp32, plan::PrecisionMode::bf16}) {
    const std::string name = boost::describe::enum_to_string(mode, "?");
    (void)train_run(config(name + "whole", "cuda", mode));
    EXPECT_EQ(train_run(config(name + "parts", "cuda", mode), stop_behind(3, 0)).exit, Exit::stopped);
    EXPECT_EQ(train_run(config(name + "parts", "cuda", mode)).exit, Exit::ok);
    const Path last = "export/000000006";
    EXPECT_EQ(bits_of(folder_ / (name + "parts") / last), bits_of(folder_ / (name + "whole") / last)) << name;
    EXPECT_EQ(losses(folder_ / (name + "parts")), losses(folder_ / (name + "whole"))) << name;
  }
}

TEST_F(RunOnGpu, ItsCheckpointIsTranslatedByTheTool) {
  (void)train_run(config("run", "cuda", plan::PrecisionMode::bf16));
  // The build tree and a bundle have the same folders.
  const Path tool =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path() / "apps" / "translate";
  const Path output = folder_ / "valid.out";
  const int code = run_words({tool.string(), (folder_ / "run/export/000000006").string(), "--input",
                              (Material::get().folder() / "valid.en").string(), "--output", output.string()},
                             {}, (folder_ / "log").string().c_str());
  EXPECT_EQ(code, 0) << Files::system().read_text(folder_ / "log");
  const std::string lines = Files::system().read_text(output);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 12);
}

}  // namespace
}  // namespace argosy::test
