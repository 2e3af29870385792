#include "comm/recording.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace argosy::comm {
namespace {

using partition::FlatSpace;
using partition::Layout;

TEST(Recording, WritesDownCallsInOrderWithTheStep) {
  const Layout layout{{2, 2}};
  const FlatSpace space{{{"w", {4096}}}, layout};
  RecordingCollectives recorder{layout, 1};
  std::vector<std::byte> flat(4096 * 4);
  std::array<double, 3> norms{1, 2, 3};
  recorder.set_step(7);
  EXPECT_TRUE(
      recorder.reduce_scatter(space, {flat.data(), 4096, DType::f32}, {flat.data(), 1024, DType::f32}, {}).done());
  recorder.set_step(8);
  recorder.all_reduce(std::span<double>{norms});
  EXPECT_TRUE(recorder.all_gather(space, {flat.data(), 4096, DType::bf16}, {}).done());
  EXPECT_EQ(recorder.calls(),
            (std::vector<RecordingCollectives::Call>{
                {"reduce_scatter", 4096, 16384, 7}, {"scalar", 3, 24, 8}, {"all_gather", 4096, 8192, 8}}));
  EXPECT_EQ(norms[2], 3);
}

TEST(Recording, CountsWhatATwoLevelBackendSends) {
  const Layout layout{{2, 2}};
  const FlatSpace space{{{"w", {4096}}}, layout};
  RecordingCollectives recorder{layout, 1};
  std::vector<std::byte> flat(4096 * 4);
  (void)recorder.reduce_scatter(space, {flat.data(), 4096, DType::f32}, {flat.data(), 1024, DType::f32}, {});
  (void)recorder.all_gather(space, {flat.data(), 4096, DType::bf16}, {});
  (void)recorder.all_gather(space, {flat.data(), 4096, DType::bf16}, {});
  EXPECT_EQ(recorder.traffic().by_operation.at("reduce_scatter"),
            (Traffic::Bytes{.inner = 8192, .outer = 4096, .calls = 1}));
  EXPECT_EQ(recorder.traffic().by_operation.at("all_gather"),
            (Traffic::Bytes{.inner = 8192, .outer = 4096, .calls = 2}));
}

TEST(Recording, HandsOnTheEventItWasGiven) {
  const Layout layout;
  const FlatSpace space{{{"w", {256}}}, layout};
  RecordingCollectives recorder{layout, 0};
  std::vector<std::byte> flat(1024);
  HostEvent computed;
  const Event gathered = recorder.all_gather(space, {flat.data(), 256, DType::f32}, computed.event());
  EXPECT_FALSE(gathered.done());
  computed.complete();
  EXPECT_TRUE(gathered.done());
}

TEST(Recording, PassesCallsOnToTheBackendBehind) {
  const Layout layout;
  const FlatSpace space{{{"w", {256}}}, layout};
  RecordingCollectives behind{layout, 0}, front{layout, 0, &behind};
  std::vector<std::byte> flat(1024);
  front.set_step(3);
  (void)front.all_gather(space, {flat.data(), 256, DType::f32}, {});
  EXPECT_EQ(behind.calls(), front.calls());
}

}  // namespace
}  // namespace argosy::comm
