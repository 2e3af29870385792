#include "comm/host_stream.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <vector>

#include "support/caught.hpp"

namespace argosy::comm {
namespace {

const HostStream::Work no_need = [] { ADD_FAILURE() << "abandoned"; };

std::string sentence_of(const Event& event) {
  const auto error = test::caught([&] { event.wait(); });
  return error ? error->what() : "";
}

TEST(HostStream, WorksInOrderBesideTheCallerAndAfterWhatItWaitsFor) {
  HostEvent computed;
  std::vector<int> done;
  HostStream stream{no_need};
  const Event first = stream.run(computed.event(), [&] { done.push_back(done.empty() ? 1 : -1); });
  const Event second = stream.run({}, [&] { done.push_back(2); });
  EXPECT_FALSE(first.done());
  EXPECT_FALSE(second.done());
  computed.complete();
  second.wait();
  EXPECT_TRUE(first.done());
  EXPECT_EQ(done, (std::vector{1, 2}));
}

TEST(HostStream, AFailureReachesAllThatFollows) {
  bool went_on = false;
  HostStream stream{no_need};
  const Event failing = stream.run({}, [] { throw Error{Fault::comm, {.wanted = "a peer"}}; });
  const Event next = stream.run(HostEvent{}.event(), [&] { went_on = true; });  // does not even wait
  EXPECT_EQ(sentence_of(next), "expected a peer");
  EXPECT_EQ(sentence_of(failing), "expected a peer");
  EXPECT_EQ(sentence_of(failing), "expected a peer");
  EXPECT_EQ(sentence_of(stream.run({}, [&] { went_on = true; })), "expected a peer");
  EXPECT_FALSE(went_on);
}

TEST(HostStream, FailsWithWhatItWaitsFor) {
  HostEvent computed;
  HostStream stream{no_need};
  const Event next = stream.run(computed.event(), [] {});
  computed.complete(std::make_exception_ptr(Error{Fault::numeric, {.wanted = "numbers"}}));
  EXPECT_EQ(sentence_of(next), "expected numbers");
}

TEST(HostStream, ItsEndFinishesWhatIsBeingDoneAndFailsTheRest) {
  HostEvent begun;
  std::atomic<bool> finished = false, went_on = false;
  std::optional<HostStream> stream{std::in_place, no_need};
  const Event first = stream->run({}, [&] {
    begun.complete();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    finished = true;
  });
  const Event second = stream->run(HostEvent{}.event(), [&] { went_on = true; });
  begun.event().wait();
  stream.reset();
  EXPECT_EQ(sentence_of(first), "");
  EXPECT_TRUE(finished);
  EXPECT_NE(sentence_of(second), "");
  EXPECT_FALSE(went_on);
}

TEST(HostStream, ItsEndAbandonsWhatDoesNotEnd) {
  HostEvent begun;
  std::stop_source stop;
  std::optional<HostStream> stream{std::in_place, [&] { stop.request_stop(); }};
  const Event stuck = stream->run({}, [&] {
    begun.complete();
    HostEvent{}.event().wait(stop.get_token());
    throw Error{Fault::comm, {.wanted = "an end"}};
  });
  begun.event().wait();
  stream.reset();
  EXPECT_EQ(sentence_of(stuck), "expected an end");
}

}  // namespace
}  // namespace argosy::comm
