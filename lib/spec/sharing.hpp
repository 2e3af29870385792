#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/config.hpp"

/// Which tasks share which part of a modular model. A stack is a run of layers of one side; of each stack there are as
/// many components as its rule (Share) makes, and a task has one of them. Embeddings may be one for each language.
namespace argosy::spec {

/// all: one component for all tasks. source, target: one for each language that is read, or written. pair: one for each
/// direction. source_group, target_group: one for each group of languages. task: one for each task.
enum class Share { all, source, target, pair, source_group, target_group, task };
BOOST_DESCRIBE_ENUM(Share, all, source, target, pair, source_group, target_group, task)

struct StackConfig {
  std::int64_t layers = 1;
  Share share = Share::all;
  bool operator==(const StackConfig&) const = default;
};
BOOST_DESCRIBE_STRUCT(StackConfig, (), (layers, share))
std::span<const config::KeyText> key_texts(const StackConfig&);
void validate(const StackConfig&, config::Problems&);

/// The largest numbers of tasks, and of languages in groups.
/// Whether a text may name a task, a language or a group: 1 to 200 letters, digits, '-', '_' and '.'. Such names are a
/// part of the names of components, and of the tensors in files.
[[nodiscard]] bool is_name(const std::string& text);
inline constexpr const char* name_rule = "1 to 200 letters, digits, '-', '_' and '.'";

inline constexpr std::size_t most_tasks = 1 << 16, most_languages = 1 << 13;

/// What a model learns: to write the target language from text in the source language.
struct Task {
  std::string name, source, target;
  bool operator==(const Task&) const = default;
};
BOOST_DESCRIBE_STRUCT(Task, (), (name, source, target))

/// The tasks of a model, and its groups of languages. A plain model has neither.
struct Sharing {
  std::vector<Task> tasks{};
  std::map<std::string, std::vector<std::string>> groups{};
  bool operator==(const Sharing&) const = default;
};
BOOST_DESCRIBE_STRUCT(Sharing, (), (tasks, groups))
std::span<const config::KeyText> key_texts(const Task&);
std::span<const config::KeyText> key_texts(const Sharing&);
void validate(const Sharing&, config::Problems&);

/// The names of the tasks, for messages: "en-fr, en-cs"; of many the first ones.
[[nodiscard]] std::string text_of(const std::vector<Task>& tasks);

/// The task of that name, or else "<source>-<target>" for two languages that the tasks and groups have: the model may
/// have been trained for this direction or not. Throws Error{usage} for other names.
[[nodiscard]] Task task_named(const Sharing& sharing, const std::string& name);

/// The group of a language; empty: none.
[[nodiscard]] std::string group_of(const Sharing& sharing, const std::string& language);

/// The component of a side ("encoder", "decoder") that a task has of a stack, such as "encoder.fr" or "decoder.slavic".
/// What goes against the usual direction says so: "encoder.to_fr", "decoder.from_fr". Empty: that of all tasks.
[[nodiscard]] std::string component_name(const std::string& side, Share share, const Task& task,
                                         const Sharing& sharing);

}  // namespace argosy::spec
