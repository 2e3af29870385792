#include "plan/tasks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "data/transforms/denoise.hpp"

namespace argosy::plan {

using config::KeyText;
using config::Problems;

namespace {

/// "en-fr", "en-*", "*-*"; or "cs", the task that restores a language's text.
struct Pattern {
  std::string source, target;

  explicit Pattern(std::string_view text) {
    const std::size_t at = text.find('-');
    source = text.substr(0, at);
    target = at == std::string_view::npos ? "" : text.substr(at + 1);
  }
  [[nodiscard]] bool matches(const Pattern& task) const {
    const auto fits = [](const std::string& wanted, const std::string& code) {
      return wanted == code || (wanted == "*" && !code.empty());
    };
    return fits(source, task.source) && fits(target, task.target);
  }
  [[nodiscard]] int stars() const { return (source == "*" ? 1 : 0) + (target == "*" ? 1 : 0); }
};

bool matches_any(const std::vector<std::string>& patterns, const Pattern& task) {
  return std::ranges::any_of(patterns, [&](const std::string& text) { return Pattern(text).matches(task); });
}

/// Names of the tasks.
std::vector<std::string> names_of(const TasksConfig& tasks) {
  std::vector<std::string> names;
  for (const std::string& source : tasks.languages) {
    for (const std::string& target : tasks.languages) {
      std::string name = fmt::format("{}-{}", source, target);
      if (source != target && matches_any(tasks.pairs, Pattern(name)) && !matches_any(tasks.except, Pattern(name)))
        names.push_back(std::move(name));
    }
  }
  names.insert(names.end(), tasks.denoise.begin(), tasks.denoise.end());
  return names;
}

/// Values of the patterns with fewest stars among those that match.
template <class T>
std::vector<T> values_for(const std::string& name, const std::map<std::string, T>& by_pattern) {
  constexpr int none = 3;
  std::vector<T> values;
  int stars = none;
  for (const auto& [text, value] : by_pattern) {
    const Pattern pattern(text);
    if (!pattern.matches(Pattern(name)) || pattern.stars() > stars) continue;
    if (pattern.stars() < stars) values.clear();
    stars = pattern.stars();
    values.push_back(value);
  }
  return values;
}
template <class T>
T value_for(const std::string& name, const std::map<std::string, T>& by_pattern, T otherwise) {
  const std::vector<T> values = values_for(name, by_pattern);
  return values.empty() ? otherwise : values.front();
}

constexpr std::array<std::string_view, 5> placeholders{"language", "source", "target", "pair", "sorted_pair"};

/// The file of one side.
std::string file_of(std::string text, const Pattern& task, const std::string& language) {
  const auto [first, second] = std::minmax(task.source, task.target);
  const std::array<std::string, placeholders.size()> values{language, task.source, task.target,
                                                            fmt::format("{}-{}", task.source, task.target),
                                                            fmt::format("{}-{}", first, second)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string name = fmt::format("{{{}}}", placeholders[i]);
    for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += values[i].size())
      text.replace(at, name.size(), values[i]);
  }
  return text;
}

void validate_file(std::string_view pointer, const std::string& text, bool is_pair, Problems& problems) {
  problems.require(text.find("{language}") != std::string::npos, pointer,
                   "a name with {language}, which differs between the files", text.empty() ? "none" : text);
  for (std::size_t at = 0; (at = text.find('{', at)) != std::string::npos; ++at) {
    const std::string name = text.substr(at + 1, text.find('}', at) - at - 1);
    const bool known = std::ranges::find(placeholders, name) != placeholders.end();
    problems.require(known && (is_pair || name == "language"), pointer,
                     is_pair ? "a name whose braces hold language, source, target, pair or sorted_pair"
                             : "a name whose braces hold language",
                     fmt::format("{{{}}}", name));
  }
}

void validate_patterns(const TasksConfig& tasks, Problems& problems) {
  const std::vector<std::string> names = names_of(tasks);
  const auto is_known = [&](const std::string& code) {
    return code == "*" || std::ranges::find(tasks.languages, code) != tasks.languages.end();
  };
  bool all_known = true;
  const auto require_pair = [&](std::string_view pointer, const std::string& text) {
    const Pattern pattern(text);
    const bool known = is_known(pattern.source) && is_known(pattern.target);
    all_known = all_known && known;
    problems.require(known, pointer,
                     fmt::format("two of {} or *, joined by a hyphen", fmt::join(tasks.languages, ", ")), text);
  };
  for (std::size_t i = 0; i < tasks.pairs.size(); ++i) require_pair(fmt::format("/pairs/{}", i), tasks.pairs[i]);
  for (std::size_t i = 0; i < tasks.except.size(); ++i) require_pair(fmt::format("/except/{}", i), tasks.except[i]);
  problems.require(!names.empty() || !all_known, "/pairs", "patterns that leave at least one task", "none left",
                   "see tasks.pairs, tasks.except and tasks.denoise");
  const auto require_use = [&](const char* key, const auto& by_pattern) {
    for (const auto& [text, value] : by_pattern) {
      problems.require(
          std::ranges::any_of(names, [&](const std::string& name) { return Pattern(text).matches(Pattern(name)); }),
          fmt::format("/{}", key), "keyed by patterns of tasks", text,
          fmt::format("the tasks are {}", fmt::join(names, ", ")));
    }
    for (const std::string& name : names)
      problems.require(values_for(name, by_pattern).size() <= 1, fmt::format("/{}", key),
                       fmt::format("keyed so that one pattern is the closest to {}", name),
                       "two that are equally close", fmt::format("add the key {}", name));
  };
  require_use("weight", tasks.weight);
  require_use("start", tasks.start);
}

}  // namespace

std::span<const KeyText> key_texts(const TaskFiles&) {
  static constexpr std::array<KeyText, 3> texts{{
      {"train",
       "text file of a side: {language} is its code; {source}, {target}, {pair} and {sorted_pair} are those of the "
       "task "
       "(fr-en: pair fr-en, sorted_pair en-fr, so that both directions have the same files)"},
      {"validation", "the same for a set of validation.sets for each direction"},
      {"denoise", "text file of a language of tasks.denoise, with {language}"},
  }};
  return texts;
}

std::span<const KeyText> key_texts(const TasksConfig&) {
  static constexpr std::array<KeyText, 10> texts{{
      {"languages", "codes, of letters, digits and _"},
      {"pairs", "directions, as patterns: \"en-fr\", \"en-*\" (from en), \"*-*\" (all)"},
      {"except", "patterns of directions that are left out"},
      {"files", "where the texts are"},
      {"denoise",
       "languages whose text the model also learns to restore from noise (as BART: 30 % of the pieces masked in spans "
       "of "
       "3 on average)"},
      {"temperature", "in the place of data.temperature"},
      {"weight", "weights of tasks by pattern, such as {\"en-*\": 2}; that with fewest * counts; default: 1"},
      {"start", "when tasks begin, by pattern, such as {\"cs-*\": 2000}; that with fewest * counts; default: 0"},
      {"source_prefix", "pieces before each source, as in a corpus: they tell the model the language to write"},
      {"transforms", "transforms of all tasks, as in a corpus"},
  }};
  return texts;
}

void validate(const TasksConfig& tasks, Problems& problems) {
  const auto is_code = [](const std::string& text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
  };
  for (std::size_t i = 0; i < tasks.languages.size(); ++i) {
    const auto begin = tasks.languages.begin(), here = begin + static_cast<std::ptrdiff_t>(i);
    problems.require(is_code(*here), fmt::format("/languages/{}", i), "a code of letters, digits and _", *here);
    problems.require(std::find(begin, here, *here) == here, fmt::format("/languages/{}", i), "in the list once", *here);
  }
  for (std::size_t i = 0; i < tasks.denoise.size(); ++i) {
    const std::string& code = tasks.denoise[i];
    problems.require(std::ranges::find(tasks.languages, code) != tasks.languages.end() &&
                         std::ranges::count(tasks.denoise, code) == 1,
                     fmt::format("/denoise/{}", i), "a code of tasks.languages, once", code);
  }
  validate_patterns(tasks, problems);
  if (names_of(tasks).size() > tasks.denoise.size()) validate_file("/files/train", tasks.files.train, true, problems);
  if (tasks.files.validation) validate_file("/files/validation", *tasks.files.validation, true, problems);
  if (!tasks.denoise.empty()) validate_file("/files/denoise", tasks.files.denoise.value_or(""), false, problems);
}

std::vector<Task> tasks_of(const TasksConfig& tasks) {
  std::vector<Task> made;
  for (const std::string& name : names_of(tasks)) {
    Pattern of(name);
    const bool denoises = of.target.empty();
    if (denoises) of.target = of.source;
    const auto files = [&](const std::string& text) {
      return Task::Lines{file_of(text, of, of.source), file_of(text, of, of.target)};
    };
    const Task::Lines texts = files(denoises ? tasks.files.denoise.value() : tasks.files.train);
    Task& task = made.emplace_back();
    task.corpus = {.name = name,
                   .languages = {of.source, of.target},
                   .source = {texts.source},
                   .target = config::StringOrList{texts.target},
                   .weight = value_for(name, tasks.weight, 1.),
                   .start = value_for(name, tasks.start, config::Period{}),
                   .transforms = tasks.transforms,
                   .source_prefix = tasks.source_prefix};
    if (denoises) {
      data::Denoise noise;
      noise.mask = 0.3;
      noise.span = data::MaskedSpan::poisson;
      task.corpus.transforms.push_back({noise});
    } else if (tasks.files.validation) {
      task.validation = files(*tasks.files.validation);
    }
  }
  return made;
}

}  // namespace argosy::plan
