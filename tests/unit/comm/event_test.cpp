#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "comm/host_stream.hpp"

namespace argosy::comm {
namespace {

TEST(Event, ADefaultOneIsComplete) {
  const Event event;
  EXPECT_TRUE(event.done());
  event.wait();
}

TEST(Event, IsCompletedByAnotherThread) {
  HostEvent work;
  const Event event = work.event();
  EXPECT_FALSE(event.done());
  int product = 0;
  const std::jthread worker([&] {
    product = 42;
    work.complete();
  });
  event.wait();
  EXPECT_EQ(product, 42);
  EXPECT_TRUE(event.done());
}

TEST(Event, CarriesTheErrorToEachWaiter) {
  HostEvent work;
  const Event one = work.event(), two = work.event();
  work.complete(std::make_exception_ptr(std::runtime_error("lost")));
  EXPECT_TRUE(one.done());
  EXPECT_THROW(one.wait(), std::runtime_error);
  EXPECT_THROW(two.wait(), std::runtime_error);
}

TEST(Event, AWaitMayBeStopped) {
  const HostEvent work;
  std::stop_source stop;
  const std::jthread stopper([&] { stop.request_stop(); });
  work.event().wait(stop.get_token());
  EXPECT_FALSE(work.event().done());
}

}  // namespace
}  // namespace argosy::comm
