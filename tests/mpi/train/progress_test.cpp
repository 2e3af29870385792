#include "train/progress.hpp"

#include <gtest/gtest.h>

#include "mpi/train/material.hpp"

namespace argosy::test {
namespace {

/// What metrics.jsonl says after `steps` steps; in step s rank r waited 2^s (r + 1) ms for data. Empty but on rank 0.
std::vector<boost::json::object> lines_after(std::int64_t steps, const telemetry::TelemetryConfig& config,
                                             std::int64_t begin = 0) {
  const SharedFolder folder;
  telemetry::Metrics::Setup setup;
  setup.config = config;
  setup.before.step = begin;
  in_context(world(), topology(Hierarchy::flat), Files::system(), [&](const comm::Context& context) {
    train::Progress progress{context, setup, folder.path()};
    for (std::int64_t s = begin + 1; s <= begin + steps; ++s) {
      telemetry::StepMetrics step;
      step.step = s;
      step.total_tgt_tokens = 10 * s;
      step.step_s = 1;
      progress.add(step, {}, 1e-3 * static_cast<double>(1 << s) * (world().rank() + 1));
    }
  });
  return metrics_lines(folder.path());
}

/// Step of a line and the wait it must tell: the steps it is about, of the slowest rank, on the mean.
struct Expected {
  std::int64_t step = 0, first = 0;
};
void expect_lines(const std::vector<boost::json::object>& lines, const std::vector<Expected>& expected) {
  if (world().rank() != 0) return;
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto [step, first] = expected[i];
    EXPECT_EQ(lines[i].at("step"), step);
    const double sum_ms = static_cast<double>((2 << step) - (1 << first)) * world().size();
    EXPECT_NEAR(lines[i].at("data_wait_ms").to_number<double>(), sum_ms / static_cast<double>(step - first + 1), 1e-6)
        << step;
    EXPECT_GT(lines[i].at("memory_bytes").to_number<double>(), 1e6) << step;
  }
}

TEST(Progress, ALogLineTellsOfItsOwnStepsWhateverTheOffset) {
  expect_lines(lines_after(9, {.log_interval = {.count = 3}}), {{3, 1}, {6, 4}, {9, 7}});
  expect_lines(lines_after(9, {.log_interval = {.count = 3}, .log_offset = 1}), {{1, 1}, {4, 2}, {7, 5}});
  expect_lines(lines_after(9, {.log_interval = {.count = 3}, .log_offset = 5}), {{2, 1}, {5, 3}, {8, 6}});
  using Unit = config::Period::Unit;
  expect_lines(lines_after(9, {.log_interval = {.count = 40, .unit = Unit::tgt_token}, .log_offset = 15}),
               {{2, 1}, {6, 3}});
  expect_lines(lines_after(6, {.log_interval = {.count = 3}, .log_offset = 1}, 5), {{7, 6}, {10, 8}});
}

}  // namespace
}  // namespace argosy::test
