#include "train/other_tasks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"

namespace argosy::train {
namespace {

std::vector<spec::Task> without(const std::vector<spec::Task>& tasks, const std::vector<spec::Task>& others) {
  std::vector<spec::Task> left;
  std::ranges::copy_if(tasks, std::back_inserter(left),
                       [&](const spec::Task& task) { return std::ranges::find(others, task) == others.end(); });
  return left;
}

std::set<std::string> components_of(const spec::ModelSpec& spec) {
  std::set<std::string> names;
  for (const spec::Component& component : spec.components) names.insert(component.name);
  return names;
}

void add_difference(std::vector<std::string>& texts, const char* what, const std::set<std::string>& all,
                    const std::set<std::string>& others) {
  std::vector<std::string> names;
  std::ranges::set_difference(all, others, std::back_inserter(names));
  if (!names.empty()) texts.push_back(fmt::format("{}: {}", what, fmt::join(names, ", ")));
}

}  // namespace

std::string difference_of(const spec::Sharing& was, const spec::Sharing& now) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* what, const std::vector<spec::Task>& tasks) {
    if (!tasks.empty()) parts.push_back(fmt::format("{} {}", what, spec::text_of(tasks)));
  };
  add("added", without(now.tasks, was.tasks));
  add("removed", without(was.tasks, now.tasks));
  if (was.groups != now.groups) parts.emplace_back("other groups");
  if (parts.empty() && was != now) parts.emplace_back("in another order");
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> take_tasks(RunState& state, const spec::Sharing& was, const spec::ModelSpec& spec) {
  if (was == spec.sharing) return {};
  // Tasks are corpora, in the same order.
  data::PoolBegin& pool = state.cursor.pool;
  if (pool.drawn.size() == was.tasks.size() && pool.owed.size() == was.tasks.size()) {
    const data::PoolBegin before = pool;
    pool.drawn.clear();
    pool.owed.clear();
    for (const spec::Task& task : spec.sharing.tasks) {
      const auto known = std::ranges::find(was.tasks, task);
      const auto at = static_cast<std::size_t>(known - was.tasks.begin());
      const bool is_new = known == was.tasks.end();
      pool.drawn.push_back(is_new ? 0 : before.drawn[at]);
      pool.owed.push_back(is_new ? 0 : before.owed[at]);
    }
  }
  state.window.corpora.clear();  // the mean of the next record begins anew, task by task
  const std::set<std::string> before = components_of(spec::ModelSpec(spec.architecture, was)),
                              now = components_of(spec);
  if (std::ranges::any_of(spec.units, &spec::Unit::has_adapters) && !std::ranges::includes(before, now)) {
    std::vector<std::string> added;
    std::ranges::set_difference(now, before, std::back_inserter(added));
    throw_claim(
        Fault::config,
        fmt::format("lora trains adapters next to weights that exist, and the run has no {}", fmt::join(added, ", ")),
        "tasks", "those whose components the run has", "new components",
        "train the new tasks without lora first, and begin a run with lora from that model");
  }
  std::erase_if(state.component_updates, [&now](const auto& counted) { return !now.contains(counted.first); });
  std::vector<std::string> texts;
  add_difference(texts, "components that begin with random values", now, before);
  add_difference(texts, "components that are left out", before, now);
  return texts;
}

}  // namespace argosy::train
