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
struct Method {
  const char* name;
  std::int64_t elements;  // of the buffer, with what pads it
  std::function<void(std::vector<float>&)> sum;
  /// Payload that this rank has sent to other nodes so far, as Collectives count it; 0 where they do not know nodes.
  std::function<double()> counted_bytes = [] { return 0.0; };
  std::vector<float> values{};
  std::vector<double> times_s{}, counted{};
  std::vector<std::vector<double>> wire{};

  /// One timed and counted sum of what ranks hold: their world rank and one, everywhere. **Collective.**
  void round(const Context& context, bool counts) {
    values.assign(static_cast<std::size_t>(elements), static_cast<float>(context.world.rank() + 1));
    const bool speaks = context.topology.local_rank() == 0;
    const double counted_before = counted_bytes();
    const double sent_before = sent_bytes();  // the first rank out of the barrier begins to send
    context.world.barrier("round");
    const double start_s = context.clock.monotonic_s();
    sum(values);
    std::array<double, 1> took{context.clock.monotonic_s() - start_s};
    context.world.barrier("end of round");
    const double sent = sent_bytes() - sent_before;
    const double p = context.world.size(), size_bytes = 4.0 * static_cast<double>(values.size());
    for (const float value : values) ARGOSY_CHECK(value == p * (p + 1) / 2, "{} sums to {}", name, value);
    context.world.all_reduce(std::span<double>{took}, argosy::comm::Reduce::max);
    const std::vector<double> on_wire = by_node(context, speaks ? sent / size_bytes : 0);
    const std::vector<double> of_payload = by_node(context, (counted_bytes() - counted_before) / size_bytes);
    if (!counts) return;
    times_s.push_back(took[0]);
    wire.push_back(on_wire);
    counted = of_payload;
  }

  [[nodiscard]] boost::json::object figures() const {
    boost::json::object object{{"seconds", boost::json::value_from(times_s)}, {"wire", boost::json::value_from(wire)}};
    if (counted_bytes() > 0) object["counted"] = boost::json::value_from(counted);
    return object;
  }
};

/// Reduce-scatter and all-gather of a training step.
Method by_collectives(const char* name, const Topology& topology, std::int64_t elements,
                      argosy::comm::Reduction reduction) {
  const FlatSpace space{{{"buffer", {elements}}}, topology.layout()};
  const std::shared_ptr<Collectives> collectives =
      argosy::comm::make_mpi_collectives(topology, {.reduction = reduction});
  const auto sum = [=, rank = topology.canonical_rank()](std::vector<float>& values) {
    argosy::test::all_reduce_flat(*collectives, space, rank,
                                  {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), DType::f32});
  };
  const auto counted_bytes = [=] {
    double outer = 0;
    for (const auto& [operation, bytes] : collectives->traffic().by_operation)
      outer += static_cast<double>(bytes.outer);
    return outer;
  };
  return {.name = name, .elements = space.padded_size(), .sum = sum, .counted_bytes = counted_bytes};
}

void sum_by_mpi(std::vector<float>& values) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void bench(const Context& context, double megabytes, int rounds) {
  using argosy::comm::Reduction;
  const auto elements = static_cast<std::int64_t>(megabytes * 1e6 / 4);
  const Topology one_node = Topology::discover(context.world, "all");
  std::vector<Method> methods{by_collectives("exact", context.topology, elements, Reduction::exact),
                              by_collectives("flat", one_node, elements, Reduction::exact),
                              by_collectives("fast", context.topology, elements, Reduction::fast),
                              {.name = "mpi_allreduce", .elements = elements, .sum = sum_by_mpi}};
  constexpr int warm_up = 1;
  for (int i = -warm_up; i < rounds; ++i)
    for (Method& method : methods) method.round(context, i >= 0);
  boost::json::object by_method;
  for (const Method& method : methods) by_method[method.name] = method.figures();
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
