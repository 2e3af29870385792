#include "comm/event.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

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

}  // namespace
}  // namespace argosy::comm
