#include "kernels/profile.hpp"

#include <ATen/ops/tensor.h>

#include <chrono>

#include "kernels/gemm.hpp"
#include "kernels/head_loss.hpp"
#include "unit/kernels/compare.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

TEST(Profile, CountsTheOperationsOfARecordingByName) {
  Profile profile;
  const at::Tensor a = values({3, 5}), b = values({5, 7});
  static_cast<void>(gemm(a, b));
  EXPECT_TRUE(profile.operations().empty());
  {
    const Profile::Recording recording(profile);
    static_cast<void>(gemm(a, b));
    static_cast<void>(gemm(a, b));
  }
  static_cast<void>(gemm(a, b));
  const Profile::Operation& products = profile.operations().at("gemm");
  EXPECT_EQ(products.calls, 2);
  EXPECT_EQ(products.flops, 2 * 2.0 * 3 * 5 * 7);
  EXPECT_GT(products.seconds, 0);
  EXPECT_EQ(profile.operations().at("pack_matrix").calls, 2);
}

TEST(Profile, TheTimeOfAnInnerOperationIsNotThatOfTheOuterOne) {
  Profile profile;
  const auto begin = std::chrono::steady_clock::now();
  {
    const Profile::Recording recording(profile);
    static_cast<void>(head_loss(values({400, 64}), values({900, 64}), std::nullopt, at::full({400}, 3, at::kLong),
                                {.live = 900}, {.dh = at::empty({400, 64}), .dweight = at::empty({900, 64})}));
  }
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double sum_s = 0;
  for (const auto& [name, operation] : profile.operations()) {
    EXPECT_GE(operation.seconds, 0) << name;
    sum_s += operation.seconds;
  }
  EXPECT_EQ(profile.operations().count("head_loss"), 1U);
  EXPECT_EQ(profile.operations().count("gemm"), 1U);
  EXPECT_LE(sum_s, wall_s);  // a time counted twice would be more
}

}  // namespace
}  // namespace argosy::test
