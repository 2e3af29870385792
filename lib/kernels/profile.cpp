#include "kernels/profile.hpp"

#include <utility>

namespace argosy::kernels {

Profile*& Profile::current() {
  static thread_local Profile* profile = nullptr;
  return profile;
}

Profile::Recording::Recording(Profile& profile) : before_(std::exchange(current(), &profile)) {}

Profile::Recording::~Recording() { current() = before_; }

Profile::Call::Call(const char* name) : name_(name), profile_(current()) {
  if (profile_ == nullptr) return;
  outer_s_ = std::exchange(profile_->inner_s_, 0);
  begin_ = std::chrono::steady_clock::now();
}

Profile::Call::~Call() {
  if (profile_ == nullptr) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  Operation& operation = profile_->operations_[name_];
  ++operation.calls;
  operation.seconds += seconds - profile_->inner_s_;
  operation.flops += flops_;
  operation.bytes += bytes_;
  profile_->inner_s_ = outer_s_ + seconds;
}

}  // namespace argosy::kernels
