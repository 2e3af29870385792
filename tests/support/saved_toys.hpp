#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/checkpoints.hpp"

/// Checkpoints of small models, saved by the ranks of a test.
namespace argosy::test {

/// What this rank holds of a model.
inline Toy own_toy(const TestContext& context, const Units& units = tiny_units()) {
  return {units, context.topology().layout(), context.topology().canonical_rank()};
}

/// Saves what a model trained from the seed `step` holds. **Collective.**
inline checkpoint::SaveReport save_toy(checkpoint::Store& store, Toy toy, std::int64_t step,
                                       checkpoint::Kind kind = checkpoint::Kind::temp,
                                       const checkpoint::Sections& sections = toy_sections()) {
  return store.save(kind, step, toy.fill(static_cast<std::uint64_t>(step)).states(), sections, toy_attachments());
}

/// Saves the steps 10, 20 and 30 of one run. Returns their directories. **Collective.**
inline std::vector<std::string> save_three(TestContext& context, const Path& run, const Units& units,
                                           const std::function<checkpoint::Sections(int)>& sections_at) {
  checkpoint::Store store{context.get(), run, {}};
  std::vector<std::string> directories;
  for (const int step : {10, 20, 30}) {
    const auto report = save_toy(store, own_toy(context, units), step, checkpoint::Kind::temp, sections_at(step));
    EXPECT_TRUE(report.committed) << report.why_not;
    directories.push_back(report.directory.string());
  }
  return directories;
}

}  // namespace argosy::test
