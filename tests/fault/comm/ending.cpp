// usage: argosy_ending HOW [OPERATION]   a tool that does OPERATION twice; HOW says how it ends, or one rank between
// the two
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/run_main.hpp"

namespace {

using argosy::Error;
using argosy::Exit;
using argosy::Fault;
using argosy::comm::Context;

Error wrong_data() { return Error{Fault::data, {.wanted = "text", .got = "noise", .where = "a.en", .remedy = "look"}}; }

/// One collective operation of each kind, on buffers of some megabytes.
class Operation {
 public:
  Operation(const Context& context, std::string name)
      : context_(context),
        name_(std::move(name)),
        collectives_(argosy::comm::make_mpi_collectives(context.topology)),
        space_({{"w", {1000000}}}, context.topology.layout()),
        flat_(static_cast<std::size_t>(space_.padded_size()), 1.0F),
        shard_(static_cast<std::size_t>(space_.owned_size(context.topology.canonical_rank()))) {
    collectives_->set_step(7);
  }

  void run() {
    std::array values{1.0};
    if (name_ == "barrier") context_.world.barrier("operation");
    if (name_ == "agree") argosy::comm::agree(context_.world, [] {});
    if (name_ == "all_reduce") collectives_->all_reduce(std::span<double>{values});
    if (name_ == "reduce_scatter") collectives_->reduce_scatter(space_, view(flat_), view(shard_), {}).wait();
    if (name_ == "all_gather") collectives_->all_gather(space_, view(flat_), {}).wait();
  }

 private:
  static argosy::comm::BufferView view(std::vector<float>& values) {
    return {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), argosy::DType::f32};
  }

  const Context& context_;
  std::string name_;
  std::unique_ptr<argosy::comm::Collectives> collectives_;
  argosy::partition::FlatSpace space_;
  std::vector<float> flat_, shard_;
};

/// Ends of all ranks in the same way.
void end_everywhere(const Context& context, const std::string& how) {
  const bool last = context.world.rank() == context.world.size() - 1;
  if (how == "throws_everywhere") throw wrong_data();
  if (how == "fails_unexpectedly") throw std::runtime_error("out of cheese");
  if (how == "agrees") {
    argosy::comm::agree(context.world, [&] {
      if (last) throw wrong_data();
    });
  }
}

/// A rank that waits for the others, who are late, is aborted there, as UCX does to a rank whose peer has died.
void abort_while_waiting(bool last) {
  if (!last) return std::this_thread::sleep_for(std::chrono::seconds(1));
  std::thread([waiting = pthread_self()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    pthread_kill(waiting, SIGABRT);
  }).detach();
}

/// Ends of the last rank alone, seen by the others in their next operation.
void end_alone(const std::string& how) {
  if (how == "throws") throw wrong_data();
  if (how == "stalls") std::raise(SIGSTOP);
  if (how == "is_killed") std::raise(SIGKILL);
  if (how == "exits") _exit(0);
  if (how == "aborts") std::abort();
}

Exit end(const Context& context, const std::string& how, const std::string& operation_name) {
  const bool last = context.world.rank() == context.world.size() - 1;
  argosy::comm::set_exit_step(12);
  end_everywhere(context, how);
  if (how == "stops_alone") return last ? Exit::stopped : Exit::ok;
  if (how == "is_told_to_stop") {
    if (last) std::raise(SIGTERM);
    if (argosy::comm::any_of(context.world, context.stop.received().has_value())) return Exit::stopped;
  }
  Operation operation(context, operation_name);
  operation.run();
  context.world.configure({.timeout_s = 2});  // all ranks are here now
  if (how == "is_aborted_waiting") abort_while_waiting(last);
  if (last) end_alone(how);
  operation.run();
  context.print_result("argosy_ending", {{"ranks", context.world.size()}});
  return Exit::ok;
}

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](Context& context) {
    return end(context, argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "nothing");
  });
}
