// usage: scripts/bench/nodes LAYOUT -- wire [MEGABYTES] [ROUNDS]     (scripts/bench/wire does that and prints tables)
// Sums one fp32 buffer over all ranks, every method in turn in every round: by levels (exact, fast), as if all ranks
// were on one node (flat), and by MPI_Allreduce. The result line gives, for each method, seconds of the rounds (slowest
// rank) and what left each node over the size of the buffer: on the wire, by the kernel's count, and by our own count.
// Ends without MPI_Finalize, which hangs over TCP in half of the runs (UCX 1.13).
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <boost/json/value_from.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "comm/collectives.hpp"
#include "comm/run_main.hpp"
#include "support/all_reduce_flat.hpp"

namespace {

using argosy::DType;
using argosy::comm::Collectives, argosy::comm::Context, argosy::comm::Topology;
using argosy::partition::FlatSpace;

/// Bytes that interfaces of this network name space other than the loopback have sent.
double sent_bytes() {
  std::ifstream table("/proc/self/net/dev");
  std::string line;
  double sum = 0;
  while (std::getline(table, line)) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with("lo")) continue;
    std::istringstream counts(line.substr(colon + 1));
    std::int64_t count = 0;
    for (int column = 0; column < 9; ++column) counts >> count;  // eight of reception, then bytes sent
    sum += static_cast<double>(count);
  }
  return sum;
}

/// `value` of one rank of each node, by node. **Collective.**
std::vector<double> by_node(const Context& context, double value) {
  std::vector<double> values(static_cast<std::size_t>(context.topology.layout().nodes()), 0.0);
  values[static_cast<std::size_t>(context.topology.node())] = value;
  context.world.all_reduce(std::span<double>{values});
  return values;
}

/// One way to sum a buffer over all ranks.
class Method {
 public:
  Method(const char* name, const Context& context) : name_(name), context_(context) {}
  virtual ~Method() = default;
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  /// One timed and counted sum of what ranks hold: their world rank and one, everywhere. **Collective.**
  void round(bool counts) {
    values_.assign(static_cast<std::size_t>(elements()), static_cast<float>(context_.world.rank() + 1));
    const bool speaks = context_.topology.local_rank() == 0;
    const double counted_before = counted_bytes();
    const double sent_before = sent_bytes();  // the first rank out of the barrier begins to send
    context_.world.barrier("round");
    const double start_s = context_.clock.monotonic_s();
    sum(values_);
    std::array<double, 1> took{context_.clock.monotonic_s() - start_s};
    context_.world.barrier("end of round");
    const double sent = sent_bytes() - sent_before;
    const double p = context_.world.size(), size_bytes = 4.0 * static_cast<double>(values_.size());
    for (const float value : values_) ARGOSY_CHECK(value == p * (p + 1) / 2, "{} sums to {}", name_, value);
    context_.world.all_reduce(std::span<double>{took}, argosy::comm::Reduce::max);
    const std::vector<double> wire = by_node(context_, speaks ? sent / size_bytes : 0);
    const std::vector<double> counted = by_node(context_, (counted_bytes() - counted_before) / size_bytes);
    if (!counts) return;
    times_s_.push_back(took[0]);
    wire_.push_back(wire);
    counted_ = counted;
  }

  [[nodiscard]] boost::json::object figures() const {
    boost::json::object object{{"seconds", boost::json::value_from(times_s_)},
                               {"wire", boost::json::value_from(wire_)}};
    if (counted_bytes() > 0) object["counted"] = boost::json::value_from(counted_);
    return object;
  }
  [[nodiscard]] const char* name() const { return name_; }

 private:
  [[nodiscard]] virtual std::int64_t elements() const = 0;  // of the buffer, with what pads it
  virtual void sum(std::vector<float>& values) = 0;
  /// Payload that this rank has sent to other nodes so far, as Collectives count it; 0 where they do not know nodes.
  [[nodiscard]] virtual double counted_bytes() const { return 0; }

  const char* const name_;
  const Context& context_;
  std::vector<float> values_;
  std::vector<double> times_s_, counted_;
  std::vector<std::vector<double>> wire_;
};

/// Reduce-scatter and all-gather of a training step.
class ByCollectives final : public Method {
 public:
  ByCollectives(const char* name, const Context& context, const Topology& topology, std::int64_t elements,
                argosy::comm::Reduction reduction)
      : Method(name, context),
        topology_(topology),
        space_({{"buffer", {elements}}}, topology.layout()),
        collectives_(argosy::comm::make_mpi_collectives(topology, {.reduction = reduction})) {}

 private:
  [[nodiscard]] std::int64_t elements() const override { return space_.padded_size(); }
  void sum(std::vector<float>& values) override {
    argosy::test::all_reduce_flat(*collectives_, space_, topology_.canonical_rank(),
                                  {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), DType::f32});
  }
  [[nodiscard]] double counted_bytes() const override {
    double sum = 0;
    for (const auto& [operation, bytes] : collectives_->traffic().by_operation) sum += static_cast<double>(bytes.outer);
    return sum;
  }

  const Topology& topology_;
  const FlatSpace space_;
  const std::unique_ptr<Collectives> collectives_;
};

class ByMpi final : public Method {
 public:
  ByMpi(const Context& context, std::int64_t elements) : Method("mpi_allreduce", context), elements_(elements) {}

 private:
  [[nodiscard]] std::int64_t elements() const override { return elements_; }
  void sum(std::vector<float>& values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  const std::int64_t elements_;
};

void bench(const Context& context, double megabytes, int rounds) {
  using argosy::comm::Reduction;
  const auto elements = static_cast<std::int64_t>(megabytes * 1e6 / 4);
  const Topology one_node = Topology::discover(context.world, "all");
  std::vector<std::unique_ptr<Method>> methods;
  const auto add = [&](const char* name, const Topology& topology, Reduction reduction) {
    methods.push_back(std::make_unique<ByCollectives>(name, context, topology, elements, reduction));
  };
  add("exact", context.topology, Reduction::exact);
  add("flat", one_node, Reduction::exact);
  add("fast", context.topology, Reduction::fast);
  methods.push_back(std::make_unique<ByMpi>(context, elements));
  constexpr int warm_up = 1;
  for (int i = -warm_up; i < rounds; ++i)
    for (const auto& method : methods) method->round(i >= 0);
  boost::json::object by_method;
  for (const auto& method : methods) by_method[method->name()] = method->figures();
  context.print_result("wire", {{"nodes", boost::json::value_from(context.topology.layout().node_sizes())},
                                {"buffer_bytes", elements * 4},
                                {"methods", by_method}});
}

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](Context& context) {
    bench(context, argc > 1 ? std::atof(argv[1]) : 16, argc > 2 ? std::atoi(argv[2]) : 3);
    context.log.flush();
    context.world.barrier("end");
    _exit(0);
    return argosy::Exit::ok;
  });
}
