#include "train/threads.hpp"

#include <gtest/gtest.h>

#include "support/temp_folder.hpp"
#include "train/control_group.hpp"

namespace argosy::train {
namespace {

int threads(const std::vector<std::string>& processors, std::size_t rank = 0, std::optional<double> quota = {}) {
  return threads_of(processors, rank, quota);
}

TEST(Threads, ProcessorsAreSharedAmongTheRanksThatMayUseThem) {
  EXPECT_EQ(threads({"11111111"}), 8);
  EXPECT_EQ(threads({"1111", "1111", "1111", "1111"}, 3), 1);
  EXPECT_EQ(threads({"1111", "1111", "1111"}), 1) << "4/3";
  EXPECT_EQ(threads({"1100", "0011"}), 2) << "bound to processors of their own";
  EXPECT_EQ(threads({"1100", "0011"}, 1), 2);
  EXPECT_EQ(threads({"1111", "0011"}, 0), 3) << "1 + 1 + 1/2 + 1/2";
  EXPECT_EQ(threads({"1111", "0011"}, 1), 1);
  EXPECT_EQ(threads({""}), 1) << "unknown";
}

TEST(Threads, AQuotaIsSharedAmongAllRanksOfTheNode) {
  EXPECT_EQ(threads({"11111111"}, 0, 3.0), 3);
  EXPECT_EQ(threads({"11111111"}, 0, 2.5), 2);
  EXPECT_EQ(threads({"11111111", "11111111"}, 0, 3.0), 1);
  EXPECT_EQ(threads({"1100", "0011"}, 0, 64.0), 2);
  EXPECT_EQ(threads({"1111"}, 0, 0.5), 1);
}

class ControlGroup : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    files.make_folders((folder / path).parent_path());
    files.write_atomically(folder / path, text);
  }
  [[nodiscard]] std::optional<double> quota() const { return cpu_quota(files, folder / "self", folder / "mount"); }
  [[nodiscard]] std::optional<double> memory() const { return memory_limit(files, folder / "self", folder / "mount"); }

  test::TempFolder folder;
  const Files files = Files::system();
};

TEST_F(ControlGroup, QuotaIsTheSmallestOfTheGroupAndThoseAroundIt) {
  write("self", "0::/slurm/job_7/step_0\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("mount/slurm/job_7/step_0/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("mount/slurm/job_7/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("mount/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("mount/slurm/job_7/step_0/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(ControlGroup, QuotaOfTheFirstVersionIsOneOfTheCpuController) {
  write("self", "5:memory:/m\n4:cpu,cpuacct:/job\n");
  write("mount/memory/m/cpu.max", "1 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("mount/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("mount/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(quota(), 4.0);
}

TEST_F(ControlGroup, QuotaIsNoneWhereNothingCanBeRead) {
  EXPECT_EQ(quota(), std::nullopt);
  write("self", "no colons\n0::\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("self", "0::/a\n");
  write("mount/a/cpu.max", "many\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(ControlGroup, MemoryIsTheSmallestLimitOfEitherVersion) {
  write("self", "4:memory:/m\n0::/slurm/job_7/step_0\n");
  EXPECT_EQ(memory(), std::nullopt);
  write("mount/slurm/job_7/step_0/memory.max", "max\n");
  EXPECT_EQ(memory(), std::nullopt);
  write("mount/slurm/job_7/memory.max", "8589934592\n");
  EXPECT_EQ(memory(), 8589934592.);
  write("mount/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory(), 8589934592.);
  write("mount/memory/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(memory(), 1073741824.);
}

TEST_F(ControlGroup, FilesOfTheKernelAreReadAlthoughTheySayThatTheyAreEmpty) {
  const Path number = "/proc/sys/kernel/pid_max";
  ASSERT_EQ(files.stat(number)->size_bytes, 0U);
  write("self", "0::/\n");
  files.make_folders(folder / "mount");
  std::filesystem::create_symlink(number, folder / "mount/memory.max");
  EXPECT_GT(memory().value_or(0), 0);
}

}  // namespace
}  // namespace argosy::train
