#include "comm/environment.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "comm/session.hpp"
#include "core/clock.hpp"
#include "core/owner.hpp"

namespace argosy::comm {
namespace {

constexpr std::chrono::seconds finalize_limit{20};

std::unique_ptr<Communicator> copy_of_world(Session& session, std::string purpose) {
  MPI_Comm copy = MPI_COMM_NULL;
  {
    const std::lock_guard lock(session.mutex);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  }
  return std::make_unique<Communicator>(std::make_unique<Communicator::Impl>(session, copy, std::move(purpose)));
}

}  // namespace

Environment::Environment(int& argc, char**& argv)
    : session_(std::make_unique<Session>(argc, argv)),
      world_(copy_of_world(*session_, "")),
      verdicts_(copy_of_world(*session_, " at the end of the run")) {}

Environment::~Environment() = default;

void Environment::exchange_hosts() { session_->hosts = world_->all_gather(host_name()); }

void Environment::within(double limit_s, const std::function<void()>& body) const {
  const double before_s = session_->timeout_s.exchange(std::min(limit_s, session_->timeout_s / 3));
  try {
    body();
  } catch (...) {
    session_->timeout_s = before_s;
    throw;
  }
  session_->timeout_s = before_s;
}

void Environment::finish(int code) {
  verdicts_->barrier("leaving");
  world_.reset();
  verdicts_.reset();
  // The code is decided and everything is written, so a library that hangs must not hold the job.
  const std::jthread timer([code](const std::stop_token& stop) {
    if (!stopped_within(stop, finalize_limit)) _exit(code);
  });
  const bool device_is_held = session_->device_is_held;
  session_.reset();
  if (device_is_held) _exit(code);  // the exit handlers of CUDA may wait for the device
}

void Environment::abort(int code) noexcept {
  // Launchers kill their proxies together with output that these have not passed on: let the error get out first.
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  // Without the lock: a thread that hangs inside MPI may hold it.
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

}  // namespace argosy::comm
