#pragma once

#include <boost/describe.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "data/data_config.hpp"

/// The section `tasks`: directions between many languages, and texts to restore, from a template for all.
namespace argosy::plan {

/// Names of files with {language}, and {source}, {target}, {pair} or {sorted_pair} (the codes in ascending order).
struct TaskFiles {
  std::string train{};
  std::optional<std::string> validation{}, denoise{};
};
BOOST_DESCRIBE_STRUCT(TaskFiles, (), (train, validation, denoise))

struct TasksConfig {
  std::vector<std::string> languages{};
  std::vector<std::string> pairs{"*-*"}, except{};  // patterns
  TaskFiles files{};
  std::vector<std::string> denoise{};
  std::optional<double> temperature{};
  std::map<std::string, double> weight{};         // by pattern
  std::map<std::string, config::Period> start{};  // by pattern
  std::vector<std::string> source_prefix{"<2{to}>"};
  std::vector<data::TransformConfig> transforms{};
};
BOOST_DESCRIBE_STRUCT(TasksConfig, (),
                      (languages, pairs, except, files, denoise, temperature, weight, start, source_prefix, transforms))
std::span<const config::KeyText> key_texts(const TaskFiles&);
std::span<const config::KeyText> key_texts(const TasksConfig&);
void validate(const TasksConfig&, config::Problems&);

/// A direction, or a language whose text is restored from noise.
struct Task {
  data::CorpusConfig corpus;  // named "en-fr", or "cs"
  struct Lines {
    std::string source, target;
  };
  std::optional<Lines> validation{};
};
/// In the order of tasks.languages: by source, then by target; after them what is to be denoised. tasks: valid.
[[nodiscard]] std::vector<Task> tasks_of(const TasksConfig& tasks);

}  // namespace argosy::plan
