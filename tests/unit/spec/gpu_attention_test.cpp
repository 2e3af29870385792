#include "spec/gpu_attention.hpp"

#include <gtest/gtest.h>

namespace argosy::spec {
namespace {

TEST(FlashParts, AddedHeadsFillTheMultiprocessors) {
  const auto expect = [](std::int64_t sequences, std::int64_t heads, std::int64_t added, std::int64_t parts) {
    const FlashParts got = flash_parts(sequences, heads, 132);
    EXPECT_EQ(got.added_heads, added) << sequences << ' ' << heads;
    EXPECT_EQ(got.parts, parts) << sequences << ' ' << heads;
  };
  expect(1, 32, 1, 4);  // 33·4 = 132 blocks in place of 32·5 = 160
  expect(2, 32, 1, 2);  // 66·2 in place of 64·3
  expect(4, 32, 0, 2);  // 128·2 = 256 of 264
  expect(1, 7, 0, 19);  // none may be added to so few
  expect(100, 32, 0, 1);
}

}  // namespace
}  // namespace argosy::spec
