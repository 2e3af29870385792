#include "kernels/profile.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <utility>
#include <vector>

namespace argosy::kernels {

struct Profile::Spans {
  struct Span {
    const char* name;
    std::size_t outer;  // the call that makes this one, or `none`
    c10::Event begin, end;
    double flops = 0, bytes = 0;
  };
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  explicit Spans(c10::Device of) : device(of) {}

  std::size_t begin(const char* name) {
    const auto event = [&] { return c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT); };
    all.push_back({name, running, event(), event()});
    all.back().begin.record(stream());
    return running = all.size() - 1;
  }
  void end(std::size_t span, double flops, double bytes) {
    all[span].end.record(stream());
    all[span].flops = flops, all[span].bytes = bytes;
    running = all[span].outer;
  }
  [[nodiscard]] c10::Stream stream() const { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

  c10::Device device;
  std::vector<Span> all;
  std::size_t running = none;
};

namespace {

std::atomic<Profile*> of_all_threads = nullptr;

}  // namespace

Profile*& Profile::current() {
  static thread_local Profile* profile = nullptr;
  return profile;
}

void Profile::add(const char* name, double seconds, double flops, double bytes) {
  Operation& operation = operations_[name];
  ++operation.calls;
  operation.seconds += seconds;
  operation.flops += flops;
  operation.bytes += bytes;
}

Profile::Recording::Recording(Profile& profile, c10::Device device)
    : profile_(profile), before_(std::exchange(current(), &profile)) {
  profile.spans_ = device.is_cpu() ? nullptr : std::make_shared<Spans>(device);
  if (!device.is_cpu()) of_all_threads = &profile;
}

Profile::Recording::~Recording() {
  current() = before_;
  of_all_threads = nullptr;
  const auto spans = std::exchange(profile_.spans_, nullptr);
  if (spans == nullptr || spans->all.empty()) return;
  spans->stream().synchronize();
  std::vector<double> own_s;
  for (Spans::Span& span : spans->all) own_s.push_back(span.begin.elapsedTime(span.end) / 1e3);
  for (std::size_t i = spans->all.size(); i-- > 0;) {  // inner calls come behind outer ones, whose time they share
    const Spans::Span& span = spans->all[i];
    if (span.outer != Spans::none) own_s[span.outer] -= span.begin.elapsedTime(span.end) / 1e3;
  }
  for (std::size_t i = 0; i < own_s.size(); ++i) {
    const Spans::Span& span = spans->all[i];
    profile_.add(span.name, own_s[i], span.flops, span.bytes);
  }
}

Profile::Call::Call(const char* name) : name_(name), profile_(current()) {
  if (profile_ == nullptr) profile_ = of_all_threads;
  if (profile_ == nullptr) return;
  if (profile_->spans_ != nullptr) {
    span_ = profile_->spans_->begin(name);
    return;
  }
  outer_s_ = std::exchange(profile_->inner_s_, 0);
  begin_ = std::chrono::steady_clock::now();
}

Profile::Call::~Call() {
  if (profile_ == nullptr) return;
  if (profile_->spans_ != nullptr) {
    profile_->spans_->end(span_, flops_, bytes_);
    return;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  profile_->add(name_, seconds - profile_->inner_s_, flops_, bytes_);
  profile_->inner_s_ = outer_s_ + seconds;
}

}  // namespace argosy::kernels
