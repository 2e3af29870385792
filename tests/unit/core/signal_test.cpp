#include "core/signal.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "core/error.hpp"

namespace argosy {
namespace {

TEST(StopSignals, RemembersTheFirst) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const StopSignals stop;
    EXPECT_EQ(stop.received(), std::nullopt);
    std::raise(signal);
    EXPECT_EQ(stop.received(), signal);
    std::raise(SIGTERM);
    EXPECT_EQ(stop.received(), signal);
  }
}

TEST(StopSignals, UnblocksThem) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::raise(SIGUSR1);  // stays pending until somebody listens
  {
    const StopSignals stop;
    EXPECT_EQ(stop.received(), SIGUSR1);
  }
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 1) << "the mask is given back";
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

TEST(StopSignals, GivesHandlersBack) {
  std::signal(SIGTERM, SIG_IGN);
  { const StopSignals stop; }
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_IGN);
}

TEST(StopSignals, IsTheOnlyOneOfItsProcess) {
  const StopSignals stop;
  EXPECT_THROW(StopSignals{}, Error);
  std::raise(SIGUSR1);
  EXPECT_EQ(stop.received(), SIGUSR1) << "the refused one has taken nothing away";
}

}  // namespace
}  // namespace argosy
