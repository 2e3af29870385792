#include "plan/traffic_model.hpp"

#include "comm/traffic.hpp"
#include "plan_support.hpp"
#include "spec/model_spec.hpp"

namespace argosy::test {
namespace {

using plan::AccumulationOrder;
using plan::Scheme;

constexpr auto depth = AccumulationOrder::depth_first, breadth = AccumulationOrder::breadth_first;
constexpr Scheme schemes[] = {Scheme::replicated, Scheme::stage_1, Scheme::stage_2,
                              Scheme::stage_3,    Scheme::hybrid,  Scheme::hsdp};

double f(double parts) { return (parts - 1) / parts; }

TEST(Traffic, EqualsTheFormulasOnEvenNodes) {
  const spec::Architecture shape = shape_of(mistral({"model.decoder.layers=2"}));
  for (const auto& [nodes, per_node] : {std::pair{1, 4}, {2, 4}, {3, 2}, {4, 1}, {16, 8}}) {
    const plan::SpaceSizes sizes =
        plan::space_sizes(shape, partition::Layout(std::vector<int>(static_cast<std::size_t>(nodes), per_node)));
    const double psi = static_cast<double>(sizes.padded), N = nodes, G = per_node, p = N * G;
    for (const std::int64_t g : {2, 4}) {
      for (const int A : {1, 3, 16}) {
        const auto sent = [&](Scheme scheme, AccumulationOrder order = depth) {
          return plan::step_traffic(sizes, plan::passes_of(scheme, A, order), {2, g, g});
        };
        const auto wire = static_cast<double>(g);
        const auto expect = [&](Scheme scheme, double rank, double node, double flat) {
          SCOPED_TRACE(fmt::format("{} of {} x {}, g {}, A {}", static_cast<int>(scheme), nodes, per_node, g, A));
          EXPECT_NEAR(static_cast<double>(sent(scheme).rank()), rank, 1e-9 * rank);
          EXPECT_NEAR(static_cast<double>(sent(scheme).node), node, 1e-9 * node);
          EXPECT_NEAR(static_cast<double>(sent(scheme).node_flat), nodes > 1 ? flat : 0, 1 + 1e-9 * flat);
        };
        expect(Scheme::stage_1, f(p) * (wire + 2) * psi, f(N) * (wire + 2) * psi, f(p) * (wire + 2) * psi);
        expect(Scheme::stage_2, (A * f(p) * wire + 2 * f(p)) * psi, (A * f(N) * wire + 2 * f(N)) * psi,
               f(p) * (A * wire + 2) * psi);
        expect(Scheme::stage_3, A * f(p) * (4 + wire) * psi, A * f(N) * (4 + wire) * psi, A * f(p) * (4 + wire) * psi);
        const double inner = A * f(G) * (4 + wire) * psi, hsdp = 2 * f(N) * wire * psi, ours = f(N) * (wire + 2) * psi;
        expect(Scheme::hsdp, inner + hsdp / G, hsdp, hsdp);
        expect(Scheme::hybrid, inner + f(G) * 2 * psi + ours / G, ours, ours);
        for (const Scheme scheme : schemes) {
          const auto once = plan::step_traffic(sizes, plan::passes_of(scheme, 1, depth), {2, g, g});
          EXPECT_EQ(sent(scheme, breadth).rank(), once.rank()) << "breadth-first does not depend on A";
          EXPECT_EQ(sent(scheme, breadth).node, once.node);
        }
      }
    }
  }
}

TEST(Traffic, IsWhatTheCollectivesCount) {
  const spec::Architecture shape = shape_of(mistral({"model.decoder.layers=2"}));
  for (const std::vector<int>& nodes : {std::vector{1}, {4}, {1, 3}, {2, 3, 3}, {1, 1, 2}, {5, 2}, {2, 2}}) {
    const partition::Layout layout(nodes);
    comm::Traffic::Bytes most;
    std::vector<std::int64_t> left(nodes.size(), 0);
    for (int rank = 0; rank < layout.world(); ++rank) {
      comm::Traffic::Bytes sent;
      for (const spec::Unit& unit : spec::ModelSpec(shape).units) {
        const partition::FlatSpace space(unit.flat(), layout);
        for (const auto& bytes :
             {comm::reduce_scatter_bytes(space, rank, 4, 2), comm::all_gather_bytes(space, rank, 2)}) {
          sent.inner += bytes.inner;
          sent.outer += bytes.outer;
        }
      }
      left[static_cast<std::size_t>(layout.node_of(rank))] += sent.outer;
      if (sent.inner + sent.outer > most.inner + most.outer) most = sent;
    }
    const auto planned =
        plan::step_traffic(plan::space_sizes(shape, layout), plan::passes_of(Scheme::stage_1, 1, depth),
                           {.weight = 2, .inner_gradient = 4, .outer_gradient = 2});
    EXPECT_EQ(planned.rank(), most.inner + most.outer) << layout.world();
    for (const std::int64_t bytes : left) EXPECT_EQ(planned.node, bytes) << layout.world();
  }
}

TEST(Traffic, ReproducesTheFiguresOfMistral) {
  const auto giga = [](int nodes, int per_node, int global, const char* wire, const char* figure) {
    const auto config =
        mistral({fmt::format("batch.global_size={}", global), fmt::format("precision.gradient_wire={}", wire)});
    return number(plan_json(config, target(nodes, per_node)), fmt::format("/schemes/{}", figure)) / 1e9;
  };
  EXPECT_NEAR(giga(2, 4, 8, "bf16", "stage_3/node_flat_bytes"), 38.0, 0.05);
  EXPECT_NEAR(giga(2, 4, 8, "bf16", "hsdp/node_bytes"), 14.5, 0.05);
  EXPECT_NEAR(giga(2, 4, 128, "bf16", "stage_3/node_flat_bytes"), 608, 0.5);
  EXPECT_NEAR(giga(2, 4, 128, "bf16", "hsdp/node_bytes"), 14.5, 0.05);
  EXPECT_NEAR(giga(16, 8, 128, "fp32", "stage_1/node_bytes"), 40.7, 0.05);
  EXPECT_NEAR(giga(16, 8, 128, "fp32", "hybrid/node_bytes"), 40.7, 0.05);
  EXPECT_NEAR(giga(16, 8, 128, "fp32", "hsdp/node_bytes"), 54.3, 0.05);
  EXPECT_NEAR(giga(16, 8, 128, "bf16", "hsdp/node_bytes"), 27.2, 0.05);
}

}  // namespace
}  // namespace argosy::test
