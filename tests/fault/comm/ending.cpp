// usage: argosy_ending HOW [OPERATION [WAIT]]   a tool that does OPERATION twice; HOW says how it ends, or one rank
// between the two. Two ranks make a node. With WAIT, NCCL's stand-in does the operation, late, and communicators wait
// for peers in their end; a rank waits on the host ("host"), or in CUDA, from which an abort frees it ("cuda") or does
// not
// ("stuck").
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <thread>

#include "comm/collectives.hpp"
#include "comm/nccl_collectives.hpp"
#include "comm/run_main.hpp"
#include "mpi/comm/stand_in_nccl.hpp"

namespace {

using argosy::Error, argosy::Exit, argosy::Fault;
using argosy::comm::Context, argosy::comm::Event, argosy::comm::Levels, argosy::comm::Topology;
using argosy::comm::test::StandInNccl;

Error wrong_data() { return Error{Fault::data, {.wanted = "text", .got = "noise", .where = "a.en", .remedy = "look"}}; }

/// One collective operation of each kind, on buffers of some megabytes.
class Operation {
 public:
  Operation(const Context& context, std::string name, const std::string& wait)
      : context_(context),
        name_(std::move(name)),
        all_(Topology::discover(context.world, "node " + std::to_string(context.world.rank() / 2))),
        part_(name_.ends_with("_of_some") ? all_.part(some, "encoder.fr") : std::nullopt),
        topology_(part_ ? *part_ : all_),
        in_cuda_(wait == "cuda" || wait == "stuck"),
        nccl_(wait.empty() ? nullptr : std::make_unique<StandInNccl>(topology_.canonical_comm(), late)),
        collectives_(make()),
        space_({{"w", {1000000}}}, topology_.layout()),
        flat_(static_cast<std::size_t>(space_.padded_size()), 1.0F),
        shard_(static_cast<std::size_t>(space_.owned_size(topology_.canonical_rank()))),
        slots_(shard_.size() * static_cast<std::size_t>(topology_.layout().nodes())) {
    if (nccl_) nccl_->abort_hangs = wait == "stuck";
  }
  ~Operation() {
    if (std::uncaught_exceptions() == 0) return;
    static_cast<void>(nccl_.release());  // a GPU outlives what has failed on it, and so does its memory
    static auto* const memory = new std::vector<std::vector<float>>;
    for (std::vector<float>* const each : {&flat_, &shard_, &slots_}) memory->push_back(std::move(*each));
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void run() {
    if (is_other()) {  // what the others say comes first
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return context_.world.barrier("others");
    }
    collectives_->set_step(7);
    std::array values{1.0};
    if (name_ == "barrier") context_.world.barrier("operation");
    if (name_ == "agree") argosy::comm::agree(context_.world, [] {});
    if (name_ == "all_reduce") collectives_->all_reduce(std::span<double>{values});
    Event done;
    if (name_ == "reduce_scatter" || name_ == "reduce_scatter_of_some")
      done = collectives_->reduce_scatter(space_, view(flat_), view(shard_), {});
    if (name_ == "reduce_in_node") done = reduce(flat_, slots_, Levels::inner);
    if (name_ == "reduce_across_nodes") done = reduce(slots_, shard_, Levels::outer);
    if (name_ == "all_gather" || name_ == "all_gather_of_some")
      done = collectives_->all_gather(space_, view(flat_), {});
    if (name_ == "gather_across_nodes") done = collectives_->all_gather(space_, view(slots_), {}, Levels::outer);
    if (name_ != "barrier" && name_ != "agree") collectives_->set_step(8);  // names operations asked for from here on
    if (in_cuda_) nccl_->synchronize();
    done.wait();
    if (part_) context_.world.barrier("others");
  }
  /// Does another operation than the other ranks.
  void stray() {
    name_ = name_.starts_with("reduce") ? "all_gather" : "reduce_scatter";
    run();
  }
  [[nodiscard]] bool is_on_gpu() const { return nccl_ != nullptr; }
  /// GPUs on which this process has a context.
  [[nodiscard]] std::int64_t contexts() const { return nccl_ ? std::ssize(nccl_->contexts()) : 0; }

 private:
  static constexpr std::chrono::milliseconds late{20};
  static constexpr std::array some{0, 1, 3};  // canonical ranks; the last one of four among them

  /// Whether some ranks do the operation, and this one does not.
  [[nodiscard]] bool is_other() const { return name_.ends_with("_of_some") && !part_; }
  [[nodiscard]] std::unique_ptr<argosy::comm::Collectives> make() const {
    if (is_other()) return nullptr;
    if (!nccl_) return argosy::comm::make_mpi_collectives(topology_);
    nccl_->table().set_device(context_.world.rank() + 1);
    return make_nccl_collectives(topology_, {}, nccl_->table());
  }
  static argosy::comm::BufferView view(std::vector<float>& values) {
    return {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), argosy::DType::f32};
  }
  Event reduce(std::vector<float>& from, std::vector<float>& to, Levels levels) {
    return collectives_->reduce_scatter(space_, view(from), view(to), {}, {.levels = levels});
  }

  const Context& context_;
  std::string name_;
  Topology all_;
  std::optional<Topology> part_;
  const Topology& topology_;
  bool in_cuda_;
  std::unique_ptr<StandInNccl> nccl_;
  std::unique_ptr<argosy::comm::Collectives> collectives_;
  argosy::partition::FlatSpace space_;
  std::vector<float> flat_, shard_, slots_;
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

/// The thread on which collectives run.
int communication_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "argosy_comm") return std::stoi(task.path().filename());
  }
  return 0;
}

/// A rank that waits for the others, who are late, is aborted there, as UCX does to a rank whose peer has died.
void abort_while_waiting(bool last) {
  if (!last) return std::this_thread::sleep_for(std::chrono::seconds(1));
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    syscall(SYS_tgkill, getpid(), communication_thread(), SIGABRT);
  }).detach();
}

/// All ranks stand still for longer than the deadline, as on a machine that is put to sleep.
void stand_still(bool last) {
  const std::string me = std::to_string(getpid());
  if (std::system(("(sleep 0.3; kill -STOP " + me + "; sleep 3; kill -CONT " + me + ") &").c_str()) != 0)
    throw wrong_data();
  if (last) std::this_thread::sleep_for(std::chrono::seconds(1));
}

/// Ends of the last rank alone, seen by the others in their next operation.
void end_alone(const Context& context, const std::string& how, Operation& operation) {
  if (how == "throws") throw wrong_data();
  if (how == "strays") operation.is_on_gpu() ? operation.stray() : context.world.barrier("elsewhere");
  if (how == "stalls") std::raise(SIGSTOP);
  if (how == "is_killed") std::raise(SIGKILL);
  if (how == "exits") _exit(0);
  if (how == "aborts") std::abort();
}

void run_twice(const Context& context, const std::string& how, Operation& operation) {
  const bool last = context.world.rank() == context.world.size() - 1;
  operation.run();
  context.world.configure({.timeout_s = operation.is_on_gpu() ? 20.0 : 2.0});  // all ranks are here now
  if (how == "is_aborted_waiting") abort_while_waiting(last);
  if (how == "stands_still") stand_still(last);
  if (last) end_alone(context, how, operation);
  operation.run();
}

/// Whether denormal numbers are 0 as operands and as results.
bool without_denormals() {
  const volatile float operand = 1e-39F, factor = 1e-20F;
  return operand * 1e10F == 0 && std::bit_cast<std::uint32_t>(factor * factor) == 0;
}

Exit end(const Context& context, const std::string& how, const std::string& operation_name, const std::string& wait) {
  const bool last = context.world.rank() == context.world.size() - 1;
  argosy::comm::set_exit_step(12);
  end_everywhere(context, how);
  if (how == "prints") context.print(std::string(1 << 20, 'x') + "\n");
  if (how == "chatters") {
    for (int line = 0; line < 10000; ++line) context.log.info("line {}", line);
  }
  if (how == "names_streams") {
    std::string names;
    for (const char* const fd : {"0", "1", "2"})
      names += std::filesystem::read_symlink(std::filesystem::path{"/proc/self/fd"} / fd).string() + "\n";
    context.files.write_atomically("streams", names);
  }
  if (how == "computes") std::thread([&] { context.print(without_denormals() ? "none\n" : "some\n"); }).join();
  if (how == "stops_alone") return last ? Exit::stopped : Exit::ok;
  if (how == "is_told_to_stop") {
    if (last) std::raise(SIGTERM);
    if (argosy::comm::any_of(context.world, context.stop.received().has_value())) return Exit::stopped;
  }
  if (!wait.empty()) {  // its watch takes the deadline when it is made
    context.world.barrier("start");
    context.world.configure({.timeout_s = 3});
  }
  Operation operation(context, operation_name, wait);
  ends_in_time(context, [&] { run_twice(context, how, operation); });
  context.print_result("argosy_ending", {{"ranks", context.world.size()}, {"contexts", operation.contexts()}});
  return Exit::ok;
}

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](Context& context) {
    const auto word = [&](int i) { return argc > i ? argv[i] : ""; };
    return end(context, word(1), word(2), word(3));
  });
}
