#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "mpi/train/made_gradients.hpp"
#include "support/judge.hpp"

/// PyTorch and transformers judge the optimizers: the same gradients over a hundred steps, on these ranks at every
/// stage of ZeRO.
namespace argosy::test {
namespace {

namespace json = boost::json;

constexpr int steps = 100;
constexpr double lr = 1e-3;

/// What the judge says of each case. nullopt: it is not installed.
std::optional<json::object> judged(const Path& folder, const std::vector<MadeMatrix>& matrices,
                                   const std::vector<double>& initial) {
  const Files files = Files::system();
  if (world().rank() == 0) {
    json::array list;
    for (const MadeMatrix& matrix : matrices)
      list.push_back({{"first", matrix.first},
                      {"rows", matrix.rows},
                      {"columns", matrix.columns},
                      {"decays", matrix.decays},
                      {"hidden", matrix.is_hidden}});
    files.write_atomically(
        folder / "task.json",
        json::serialize(
            json::object{{"matrices", list}, {"initial", json::value_from(initial)}, {"steps", steps}, {"lr", lr}}));
    const int code = run_judge("optimizer_judge.py", fmt::format("'{}' '{}'", (folder / "task.json").string(),
                                                                 (folder / "judged.json").string()));
    EXPECT_TRUE(code == no_judges || code == 0) << code;
  }
  world().barrier("judge");
  if (!files.exists(folder / "judged.json")) return std::nullopt;
  return json::parse(files.read_text(folder / "judged.json")).as_object();
}

struct Case {
  const char* name;  // of the judge
  optim::OptimizerConfig optimizer;
  double bound = 0;  // of the distance: in norms of the weights, or of their change
  bool of_change = false;
  at::ScalarType type = at::kFloat;  // of the weights; masters are fp32
};

std::vector<Case> cases() {
  using optim::OptimizerType;
  std::vector<Case> all;
  all.push_back({"adamw", {.weight_decay = 0.1}, 1e-6});
  all.push_back({"adafactor", {.type = OptimizerType::adafactor, .weight_decay = 0.1}, 1e-5});
  all.push_back({"adafactor relative", {.type = OptimizerType::adafactor, .relative_step = true}, 1e-5});
  all.push_back({"muon fp32", {.type = OptimizerType::muon, .weight_decay = 0.1}, 1e-5});
  all.push_back({"muon", {.type = OptimizerType::muon, .weight_decay = 0.1}, bf16_bound, true});
  all.push_back({"muon", {.type = OptimizerType::muon, .weight_decay = 0.1}, 2 * bf16_bound, true, at::kBFloat16});
  return all;
}

/// Without the biases of dead ids, -1e4, next to which all else is small.
std::vector<double> without_dead(std::vector<double> values, const std::vector<double>& initial) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (initial[i] < -1000) values[i] = 0;
  return values;
}

class OptimizerJudge : public testing::Test {
 protected:
  SharedFolder folder_;
};

TEST_F(OptimizerJudge, AgreesOverAHundredSteps) {
  const spec::Architecture shape = small_shape();
  const comm::Topology& where = topology(Hierarchy::flat);
  const auto collectives = comm::make_mpi_collectives(where);
  std::optional<json::object> expected;
  std::vector<double> initial;
  for (Case each : cases()) {
    each.optimizer.max_grad_norm = 0;
    for (const plan::Scheme scheme : {plan::Scheme::stage_1, plan::Scheme::stage_2, plan::Scheme::stage_3}) {
      SCOPED_TRACE(
          fmt::format("{}, {}, {}", each.name, at::toString(each.type), boost::describe::enum_to_string(scheme, "")));
      const Training training{.scheme = scheme, .type = each.type, .optimizer = each.optimizer};
      Rank rank{shape, where.layout(), where.canonical_rank(), *collectives, training};
      const std::vector<MadeMatrix> matrices = matrices_of(rank);
      if (initial.empty()) {
        initial = rank.weights();
        expected = judged(folder_.path(), matrices, initial);
        if (!expected) GTEST_SKIP() << no_judges_text;
      }
      int step = 0;
      rank.before_update = [&] { set_gradients(rank, matrices, where.canonical_rank(), step); };
      const optim::Schedule relative = optim::relative_steps(false, steps);
      for (step = 1; step <= steps; ++step)
        (void)rank.step({copy_batch(shape, 1, 2)},
                        each.optimizer.relative_step ? optim::learning_rate(relative, step) : lr);
      const auto theirs = without_dead(json::value_to<std::vector<double>>(expected->at(each.name)), initial),
                 ours = without_dead(rank.weights(), initial), before = without_dead(initial, initial);
      EXPECT_LT(distance(ours, theirs), each.bound * (each.of_change ? distance(before, theirs) : 1));
      EXPECT_GT(distance(ours, before), 1e-3);
    }
  }
}

}  // namespace
}  // namespace argosy::test
