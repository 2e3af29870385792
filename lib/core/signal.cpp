#include "core/signal.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <csignal>

#include "core/error.hpp"

namespace argosy {
namespace {

// A signal handler can reach nothing else than static storage.
std::atomic<int> first_signal{0};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr std::array signals{SIGTERM, SIGINT, SIGUSR1};
std::array<struct sigaction, signals.size()> previous_actions;
sigset_t previous_mask;

void remember(int signal) noexcept {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

StopSignals::StopSignals() {
  ARGOSY_CHECK(!installed.exchange(true), "a second StopSignals in this process");
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigset_t unblocked;
  sigemptyset(&unblocked);
  for (std::size_t i = 0; i < signals.size(); ++i) {
    sigaction(signals[i], &action, &previous_actions[i]);
    sigaddset(&unblocked, signals[i]);
  }
  pthread_sigmask(SIG_UNBLOCK, &unblocked, &previous_mask);
}

StopSignals::~StopSignals() {
  pthread_sigmask(SIG_SETMASK, &previous_mask, nullptr);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &previous_actions[i], nullptr);
  installed = false;
}

std::optional<int> StopSignals::received() noexcept {
  const int signal = installed ? first_signal.load() : 0;
  return signal == 0 ? std::nullopt : std::optional{signal};
}

}  // namespace argosy
