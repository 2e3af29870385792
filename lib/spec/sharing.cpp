#include "spec/sharing.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"
#include "spec/model_config.hpp"

namespace argosy::spec {

std::span<const config::KeyText> key_texts(const StackConfig&) {
  static constexpr std::array<config::KeyText, 2> texts{{
      {"layers", "number of blocks"},
      {"share",
       "which tasks share one copy of these blocks: all (all tasks), source, target (those of one language), pair "
       "(those of one direction), source_group, target_group (those of one group of languages), or task (each has its "
       "own)"},
  }};
  return texts;
}

void validate(const StackConfig& stack, config::Problems& problems) {
  problems.require(stack.layers > 0 && stack.layers <= most_layers, "/layers",
                   fmt::format("an integer from 1 to {}", most_layers), stack.layers);
}

std::span<const config::KeyText> key_texts(const Task&) {
  static constexpr std::array<config::KeyText, 3> texts{{
      {"name", "of the task"},
      {"source", "code of the language that is read"},
      {"target", "code of the language that is written"},
  }};
  return texts;
}

std::span<const config::KeyText> key_texts(const Sharing&) {
  static constexpr std::array<config::KeyText, 2> texts{{
      {"tasks", "of the model"},
      {"groups", "of languages"},
  }};
  return texts;
}

bool is_name(const std::string& text) {
  constexpr std::size_t longest = 200;
  return !text.empty() && text.size() <= longest && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

void validate(const Sharing& sharing, config::Problems& problems) {
  problems.require(sharing.tasks.size() <= most_tasks, "/tasks", fmt::format("at most {}", most_tasks),
                   sharing.tasks.size());
  std::set<std::string> names, languages;
  for (std::size_t i = 0; i < sharing.tasks.size(); ++i) {
    const auto& [name, source, target] = sharing.tasks[i];
    for (const auto& [key, text] : {std::pair{"name", &name}, {"source", &source}, {"target", &target}})
      problems.require(is_name(*text), fmt::format("/tasks/{}/{}", i, key), name_rule, *text);
    problems.require(names.insert(name).second, fmt::format("/tasks/{}/name", i), "a name that no other task has",
                     name);
  }
  for (const auto& [group, members] : sharing.groups) {
    problems.require(is_name(group), "/groups", name_rule, group);
    for (const std::string& language : members)
      problems.require(is_name(language) && languages.insert(language).second, fmt::format("/groups/{}", group),
                       "languages that are in no other group", language);
  }
  problems.require(languages.size() <= most_languages, "/groups", fmt::format("at most {} languages", most_languages),
                   languages.size());
}

std::string text_of(const std::vector<Task>& tasks) {
  constexpr std::size_t most = 12;
  std::vector<std::string> names;
  for (const Task& task : std::span{tasks}.first(std::min(most, tasks.size()))) names.push_back(task.name);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     tasks.size() > most ? fmt::format(" and {} more", tasks.size() - most) : "");
}

Task task_named(const Sharing& sharing, const std::string& name) {
  const auto known = std::ranges::find(sharing.tasks, name, &Task::name);
  if (known != sharing.tasks.end()) return *known;
  std::set<std::string> languages;
  for (const Task& task : sharing.tasks) languages.insert({task.source, task.target});
  for (const auto& [group, members] : sharing.groups) languages.insert(members.begin(), members.end());
  for (std::size_t at = 0; (at = name.find('-', at)) != std::string::npos; ++at) {  // codes may contain it
    Task pair{name, name.substr(0, at), name.substr(at + 1)};
    if (languages.contains(pair.source) && languages.contains(pair.target)) return pair;
  }
  throw_claim(Fault::usage,
              fmt::format("{} is neither a task of the model nor a pair of its languages ({})", name,
                          fmt::join(languages, ", ")),
              "--task", "a task, or two languages with a hyphen between", name,
              fmt::format("its tasks are {}", text_of(sharing.tasks)));
}

std::string group_of(const Sharing& sharing, const std::string& language) {
  for (const auto& [name, languages] : sharing.groups)
    if (std::ranges::find(languages, language) != languages.end()) return name;
  return {};
}

std::string component_name(const std::string& side, Share share, const Task& task, const Sharing& sharing) {
  const bool encodes = side == "encoder";
  const auto of_source = [&](const std::string& key) {
    return fmt::format("{}.{}{}", side, encodes ? "" : "from_", key);
  };
  const auto of_target = [&](const std::string& key) {
    return fmt::format("{}.{}{}", side, encodes ? "to_" : "", key);
  };
  switch (share) {
    case Share::all:
      break;
    case Share::source:
      return of_source(task.source);
    case Share::target:
      return of_target(task.target);
    case Share::pair:
      return fmt::format("{}.{}-{}", side, task.source, task.target);
    case Share::source_group:
      return of_source(group_of(sharing, task.source));
    case Share::target_group:
      return of_target(group_of(sharing, task.target));
    case Share::task:
      return fmt::format("{}.task_{}", side, task.name);
  }
  return {};
}

}  // namespace argosy::spec
