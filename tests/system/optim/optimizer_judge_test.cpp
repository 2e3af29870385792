#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "mpi/train/rank.hpp"
#include "support/judge.hpp"

/// PyTorch and transformers judge the optimizers: the same gradients over a hundred steps, on these ranks at every
/// stage of ZeRO.
namespace argosy::test {
namespace {

namespace json = boost::json;

constexpr int steps = 100;
constexpr double lr = 1e-3;

/// As optimizer_judge.py makes them: between -0.5 and 0.5, five times as large in every tenth step.
float gradient_of(std::size_t matrix, int step, std::int64_t element) {
  auto h = static_cast<std::uint32_t>(matrix) * 0x9E3779B1U + static_cast<std::uint32_t>(step) * 0x85EBCA77U +
           static_cast<std::uint32_t>(element) * 0xC2B2AE3DU;
  h = (h ^ (h >> 15)) * 0x2C1B3C6DU;
  h = (h ^ (h >> 12)) * 0x297A2D39U;
  h ^= h >> 15;
  return (static_cast<float>(h >> 8) * 0x1p-24F - 0.5F) * (step % 10 == 0 ? 5.0F : 1.0F);
}

struct JudgedMatrix {
  std::size_t unit = 0;
  std::int64_t begin = 0, rows = 0, columns = 0;  // begin: in the unit's flat space
  std::int64_t first = 0;                         // of Rank::weights()
  bool decays = false, is_hidden = false;
};

std::vector<JudgedMatrix> matrices_of(Rank& rank) {
  std::vector<JudgedMatrix> all;
  const std::vector<partition::FlatSpace> spaces = rank.spaces();
  for (std::int64_t first = 0, u = 0; const partition::FlatSpace& space : spaces) {
    const spec::Unit& unit = rank.model().spec().units[static_cast<std::size_t>(u)];
    std::vector<std::int64_t> firsts;
    for (const partition::ParamSpec& param : space.params())
      firsts.push_back(std::exchange(first, first + param.numel()));
    for (const spec::Matrix& matrix : unit.matrices()) {
      const std::size_t index = space.index_of(matrix.parameter->name);
      all.push_back({.unit = static_cast<std::size_t>(u),
                     .begin = space.offset(index) + matrix.begin,
                     .rows = matrix.rows,
                     .columns = matrix.columns,
                     .first = firsts[index] + matrix.begin,
                     .decays = matrix.parameter->decay,
                     .is_hidden = matrix.parameter->decay && unit.is_block});
    }
    ++u;
  }
  return all;
}

void set_gradients(Rank& rank, const std::vector<JudgedMatrix>& matrices, int canonical_rank, int step) {
  const std::vector<partition::FlatSpace> spaces = rank.spaces();
  for (std::size_t u = 0; u < spaces.size(); ++u) {
    std::vector<float> flat(static_cast<std::size_t>(spaces[u].padded_size()));
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const JudgedMatrix& matrix = matrices[m];
      for (std::int64_t i = 0; matrix.unit == u && i < matrix.rows * matrix.columns; ++i)
        flat[static_cast<std::size_t>(matrix.begin + i)] = gradient_of(m, step, i);
    }
    float* local = rank.buffers().units()[u].shard.gradient.data_ptr<float>();
    for (const int slice : spaces[u].owned_slices(canonical_rank))
      local = std::copy_n(flat.begin() + spaces[u].slice_begin(slice), spaces[u].slice_size(), local);
  }
}

/// What the judge says of each case. nullopt: it is not installed.
std::optional<json::object> judged(const Path& folder, const std::vector<JudgedMatrix>& matrices,
                                   const std::vector<double>& initial) {
  const Files files = Files::system();
  if (world().rank() == 0) {
    json::array list;
    for (const JudgedMatrix& matrix : matrices)
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
};

/// Rounding of bf16 in each of the three products of the five iterations, half of it, and nothing averages out.
constexpr double bf16_bound = 5 * 3 * 0x1p-9 * 2;

std::vector<Case> cases() {
  using optim::OptimizerType;
  std::vector<Case> all;
  all.push_back({"adamw", {.weight_decay = 0.1}, 1e-6});
  all.push_back({"adafactor", {.type = OptimizerType::adafactor, .weight_decay = 0.1}, 1e-5});
  all.push_back({"adafactor relative", {.type = OptimizerType::adafactor, .relative_step = true}, 1e-5});
  all.push_back({"muon fp32", {.type = OptimizerType::muon, .weight_decay = 0.1}, 1e-5});
  all.push_back({"muon", {.type = OptimizerType::muon, .weight_decay = 0.1}, bf16_bound, true});
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
      SCOPED_TRACE(fmt::format("{}, {}", each.name, boost::describe::enum_to_string(scheme, "")));
      const Training training{.scheme = scheme, .optimizer = each.optimizer};
      Rank rank{shape, where.layout(), where.canonical_rank(), *collectives, training};
      const std::vector<JudgedMatrix> matrices = matrices_of(rank);
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
