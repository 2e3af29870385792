#include "soup/components.hpp"

#include <cmath>
#include <map>
#include <numeric>

#include "checkpoint/fields.hpp"
#include "core/error.hpp"
#include "data/tokenizer_pack.hpp"
#include "model/stored_spec.hpp"

namespace argosy::soup {
namespace {

using checkpoint::Reader;

[[noreturn]] void refuse_part(const Reader& reader, const std::string& claim, std::string wanted, std::string got) {
  const std::string where = reader.directory().string();
  throw_claim(Fault::data, fmt::format("{} {}", where, claim), where, std::move(wanted), std::move(got),
              "leave this checkpoint out");
}

/// Adds the tasks and groups of a checkpoint to those of others.
void add_tasks(spec::Sharing& all, const Reader& reader) {
  const spec::Sharing own = model::stored_sharing(reader);
  if (own.tasks.empty())
    refuse_part(reader, "has no tasks, and --components is for models of several", "a model of several tasks", "none");
  for (const spec::Task& task : own.tasks) {
    const auto known = std::ranges::find(all.tasks, task.name, &spec::Task::name);
    if (known == all.tasks.end()) {
      all.tasks.push_back(task);
    } else if (*known != task) {
      refuse_part(reader, fmt::format("has another task {} than the inputs before it", task.name),
                  fmt::format("{} from {} to {}", task.name, known->source, known->target),
                  fmt::format("from {} to {}", task.source, task.target));
    }
  }
  for (const auto& [group, languages] : own.groups) {
    for (const std::string& language : languages) {
      const std::string before = group_of(all, language);
      if (before.empty()) all.groups[group].push_back(language);
      if (!before.empty() && before != group)
        refuse_part(
            reader,
            fmt::format("has the language {} in the group {}, an input before it in {}", language, group, before),
            "each language in one group", group);
    }
  }
}

}  // namespace

spec::ModelSpec model_of_all_tasks(std::span<const Reader> readers) {
  spec::Sharing all;
  for (const Reader& reader : readers) add_tasks(all, reader);
  const Reader& first = readers.front();
  const std::string where = first.directory().string();
  const checkpoint::Fields model{first.sections().model, "/model", where};
  try {
    return {spec::resolve(model::stored_config(first).value(), model.count("vocab_size", spec::most_size)),
            std::move(all)};
  } catch (const Error& error) {
    if (error.fault() != Fault::config) throw;
    refuse_part(first,
                fmt::format("and the other inputs have tasks that no single model can have ({})", error.problem()),
                "tasks of one model", "others");
  }
}

std::optional<std::string> tokenizers_of_all(const Mean& mean) {
  const boost::json::object& section = mean.readers.front()->sections().model;
  if (mean.whole == nullptr || !model::share_tokenizers(section, section)) return std::nullopt;
  data::TokenizerPack all{.by_language = true, .files = {}};
  for (const Reader* reader : mean.readers) {
    const std::string where = (reader->directory() / tokenizer_file).string();
    for (auto& [language, file] : data::unpack_several(reader->attachment(tokenizer_file), where).files) {
      const auto [known, is_new] = all.files.emplace(language, file);
      if (!is_new && known->second != file)
        refuse_part(*reader, fmt::format("has another tokenizer of the language {} than an input before it", language),
                    "one tokenizer of each language", "another");
    }
  }
  return data::pack_several(all);
}

std::vector<std::vector<std::size_t>> owners_of(const Mean& mean) {
  std::vector<std::vector<std::size_t>> owners(mean.whole->units.size());
  for (std::size_t k = 0; k < mean.readers.size(); ++k) {
    const Reader& reader = *mean.readers[k];
    std::map<std::string_view, const std::vector<std::int64_t>*> left;
    for (const Reader::Parameter& parameter : reader.parameters()) left.emplace(parameter.name, &parameter.shape);
    for (std::size_t u = 0; u < owners.size(); ++u) {
      const spec::Unit& unit = mean.whole->units[u];
      const auto has = std::ranges::count_if(unit.parameters, [&](const spec::Parameter& parameter) {
        const auto found = left.find(parameter.name);
        return found != left.end() && *found->second == parameter.shape && left.erase(parameter.name) == 1;
      });
      if (has > 0) owners[u].push_back(k);
      if (has > 0 && has < std::ssize(unit.parameters))
        refuse_part(reader, fmt::format("has other shapes in {} than the model of all tasks", unit.name), "its shapes",
                    "others");
    }
    if (!left.empty())
      refuse_part(reader, fmt::format("has {}, unlike the model of all tasks", left.begin()->first),
                  "the parameters of the model of all tasks", "others");
  }
  for (std::size_t u = 0; u < owners.size(); ++u) {
    const double sum = std::accumulate(owners[u].begin(), owners[u].end(), 0.0,
                                       [&](double before, std::size_t k) { return before + mean.mixture.weights[k]; });
    if (!std::isfinite(sum) || sum == 0)
      throw_claim(Fault::usage,
                  fmt::format("the weights of the inputs that have {} add up to {}", mean.whole->units[u].name, sum),
                  "--weights", "a finite sum other than zero for each component", fmt::format("{}", sum),
                  "give other weights, or leave a checkpoint out");
  }
  return owners;
}

std::map<std::string, std::vector<std::size_t>> partial_components(const Mean& mean) {
  std::map<std::string, std::vector<std::size_t>> partial;
  const std::vector<std::vector<std::size_t>> owners = owners_of(mean);
  for (std::size_t u = 0; u < owners.size(); ++u)
    if (owners[u].size() < mean.readers.size())
      partial.emplace(mean.whole->components[mean.whole->units[u].component].name, owners[u]);
  return partial;
}

}  // namespace argosy::soup
