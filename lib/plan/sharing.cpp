#include "plan/sharing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.hpp"
#include "data/tokenizer_files.hpp"

namespace argosy::plan {
namespace {

using config::Problems;

void validate_groups(const RunConfig& config, const std::set<std::string>& languages, Problems& problems) {
  std::map<std::string, std::string> group_of;  // by language
  for (const auto& [name, members] : config.groups) {
    const std::string pointer = fmt::format("/groups/{}", name);
    problems.require(!languages.contains(name), pointer, "a name that is no code of a language", name);
    problems.require(spec::is_name(name), pointer, fmt::format("named by {}", spec::name_rule), name);
    problems.require(!members.empty(), pointer, "at least one language", "none");
    for (const std::string& language : members) {
      problems.require(languages.contains(language), pointer,
                       fmt::format("languages of the tasks: {}", fmt::join(languages, ", ")), language);
      const auto [known, is_new] = group_of.emplace(language, name);
      problems.require(is_new, pointer, fmt::format("each language in one group; {} is in {}", language, known->second),
                       language);
    }
  }
  problems.require(group_of.size() <= spec::most_languages, "/groups",
                   fmt::format("at most {} languages", spec::most_languages), group_of.size());
}

void validate_placement(const RunConfig& config, const std::vector<data::CorpusConfig>& corpora, Problems& problems) {
  const auto& placed = config.placement.tasks;
  if (placed.empty()) return;
  std::set<std::string> names;
  for (const data::CorpusConfig& corpus : corpora) names.insert(corpus.name);
  for (const auto& [task, ranks] : placed)
    problems.require(names.contains(task), "/placement", fmt::format("of tasks: {}", fmt::join(names, ", ")), task);
  std::erase_if(names, [&](const std::string& name) { return placed.contains(name); });
  problems.require(names.empty(), "/placement", "the ranks of each task",
                   fmt::format("none for {}", fmt::join(names, ", ")));
}

/// How stacks are shared.
std::set<spec::Share> shares_of(const spec::ModelConfig& model) {
  std::set<spec::Share> shares;
  for (const spec::SideConfig* side : {&model.encoder, &model.decoder}) {
    if (side->stacks.empty()) shares.insert(spec::Share::all);
    for (const spec::StackConfig& stack : side->stacks) shares.insert(stack.share);
  }
  return shares;
}

/// Whether some parameters belong to all tasks.
bool has_shared_part(const spec::ModelConfig& model) {
  const auto is = [&](spec::Position position) {
    return model.encoder.position == position || model.decoder.position == position;
  };
  return model.embeddings.share == spec::EmbeddingShare::all || shares_of(model).contains(spec::Share::all) ||
         model.norm_position == spec::NormPosition::pre || is(spec::Position::learned) || is(spec::Position::t5);
}

}  // namespace

void validate_sharing(const RunConfig& config, Problems& problems) {
  const std::set<spec::Share> shares = shares_of(config.model);
  const bool by_source = shares.contains(spec::Share::source_group),
             by_target = shares.contains(spec::Share::target_group);
  problems.require(config.groups.empty() || by_source || by_target, "/groups",
                   "absent, since no stack has share source_group or target_group", "groups");
  problems.require(config.loss.normalise == LossNormalisation::step || !spec::is_plain(config.model), "/loss/normalise",
                   "step, since all tasks share all of the model", "component");
  problems.require(config.placement.is_everywhere() || !spec::is_plain(config.model), "/placement",
                   "everywhere, since all tasks share all of the model", config.placement.text());
  problems.require(config.placement.is_everywhere() || has_shared_part(config.model), "/placement",
                   "everywhere, since all tasks share no part of the model", config.placement.text(),
                   "set model.norm_position to pre, whose last norms all tasks share");
  problems.require(!data::has_language_tokenizers(config.data) ||
                       (config.model.embeddings.share == spec::EmbeddingShare::language && !is_language_model(config)),
                   "/data/tokenizer",
                   "a name without {language}, since all languages have the same embeddings (model.embeddings)",
                   config.data.tokenizer,
                   is_language_model(config) ? "name one file" : "set model.embeddings to {\"share\": \"language\"}");
  if (spec::is_plain(config.model) || is_language_model(config)) return;
  std::vector<data::CorpusConfig> corpora;
  {
    data::DataConfig both = config.data;
    data::expand_directions(both);
    corpora = std::move(both.corpora);
  }
  std::set<std::string> languages;
  problems.require(corpora.size() <= spec::most_tasks, "/data/corpora", fmt::format("at most {}", spec::most_tasks),
                   corpora.size());
  for (const data::CorpusConfig& corpus : corpora) {
    const config::Problems::Scope scope(problems, fmt::format("data/corpora/{}", &corpus - corpora.data()));
    problems.require(corpus.languages.size() == 2, "/languages",
                     "two codes, since the model has parts that only some tasks share",
                     fmt::format("{} in corpus {}", corpus.languages.size(), corpus.name));
    problems.require(std::ranges::all_of(corpus.languages, spec::is_name), "/languages",
                     fmt::format("codes of {}, since components have their names", spec::name_rule),
                     fmt::format("{} in corpus {}", fmt::join(corpus.languages, ", "), corpus.name));
    problems.require(spec::is_name(corpus.name), "/name",
                     fmt::format("{}, since components have such names", spec::name_rule), corpus.name);
    languages.insert(corpus.languages.begin(), corpus.languages.end());
  }
  validate_groups(config, languages, problems);
  validate_placement(config, corpora, problems);
  const spec::Sharing sharing{.tasks = {}, .groups = config.groups};
  std::set<std::string> lacking;
  for (const data::CorpusConfig& corpus : corpora) {
    if (corpus.languages.size() != 2) continue;
    for (const auto& [asks, language] :
         {std::pair{by_source, corpus.languages.front()}, {by_target, corpus.languages.back()}})
      if (asks && spec::group_of(sharing, language).empty()) lacking.insert(language);
  }
  problems.require(lacking.empty(), "/groups", "a group for each language, since stacks are shared by groups",
                   fmt::format("none for {}", fmt::join(lacking, ", ")));
  for (std::size_t i = 0; i < config.validation.sets.size(); ++i)
    problems.require(config.validation.sets[i].corpus.has_value(), fmt::format("/validation/sets/{}/corpus", i),
                     "the name of the corpus that the set is for, since it decides which parts are used", "none");
}

spec::Sharing sharing_of(const RunConfig& config) {
  spec::Sharing sharing;
  if (spec::is_plain(config.model)) return sharing;
  for (const data::CorpusConfig& corpus : config.data.corpora)
    sharing.tasks.push_back({corpus.name, corpus.languages.front(), corpus.languages.back()});
  sharing.groups = config.groups;
  return sharing;
}

namespace {

/// By component.
std::vector<std::int64_t> parameters_of(const spec::ModelSpec& spec) {
  std::vector<std::int64_t> parameters(spec.components.size());
  for (const spec::Unit& unit : spec.units)
    for (const spec::Parameter& parameter : unit.parameters) parameters[unit.component] += parameter.numel();
  return parameters;
}

}  // namespace

std::string name_of_group(const spec::ModelSpec& spec, const Placement& placement, const std::vector<int>& members) {
  std::string name;
  int more = -1;
  for (std::size_t c = 0; c < spec.components.size(); ++c) {
    if (placement.members(c) != members) continue;
    if (more++ < 0) name = spec.components[c].name;
  }
  return more > 0 ? fmt::format("{} and {} more", name, more) : name;
}

std::string text_of(const Placement& placement, const spec::ModelSpec& spec) {
  if (placement.is_everywhere()) return {};
  PlacementConfig tasks;
  for (const auto& [task, route] : spec.route_of) tasks.tasks[task] = placement.routes[route];
  return tasks.text();
}

std::string text_of_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    while (end < ranks.size() && ranks[end] - ranks[begin] == narrow<int>(end - begin)) ++end;
    const int first = ranks[begin], last = ranks[end - 1];
    runs.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

std::vector<std::string> task_lines(const spec::ModelSpec& spec, const Placement& placement) {
  if (spec.sharing.tasks.empty()) return {"the model has no parts that only some tasks share"};
  std::vector<std::string> lines{
      fmt::format("{} tasks, {} components, {}", spec.sharing.tasks.size(), spec.components.size(),
                  placement.is_everywhere() ? "all on every rank" : "each on some of the ranks"),
      fmt::format("  {:<24} {:>15}  tasks", "component", "parameters")};
  const auto with_ranks = [&](std::string line, const std::vector<int>& ranks) {
    if (!placement.is_everywhere())
      line += ranks.empty() ? "; all ranks" : fmt::format("; ranks {}", text_of_ranks(ranks));
    lines.push_back(std::move(line));
  };
  const std::vector<std::int64_t> parameters = parameters_of(spec);
  for (std::size_t c = 0; c < spec.components.size(); ++c)
    with_ranks(fmt::format("  {:<24} {:>15}  {}", spec.components[c].name, parameters[c],
                           fmt::join(spec.components[c].tasks, ", ")),
               placement.members(c));
  lines.push_back(fmt::format("  {:<24} {:>15}  components", "task", "parameters"));
  for (const spec::Task& task : spec.sharing.tasks) {
    std::vector<std::string> names;
    std::int64_t all = 0;
    for (std::size_t c = 0; c < spec.components.size(); ++c) {
      if (std::ranges::count(spec.components[c].tasks, task.name) == 0) continue;
      names.push_back(spec.components[c].name);
      all += parameters[c];
    }
    with_ranks(fmt::format("  {:<24} {:>15}  {}", task.name, all, fmt::join(names, ", ")),
               placement.is_everywhere() ? std::vector<int>{} : placement.routes[spec.route_of.at(task.name)]);
  }
  return lines;
}

std::string components_line(const spec::ModelSpec& spec, const Placement& placement, int world) {
  constexpr std::size_t most = 8;
  if (spec.components.size() == 1) return {};
  const std::vector<std::int64_t> parameters = parameters_of(spec);
  std::size_t fewest = spec.components.size(), largest = 0;  // on a rank
  for (int rank = 0; rank < world; ++rank) {
    const std::size_t own = spec.components.size() - placement.absent(rank).size();
    fewest = std::min(fewest, own);
    largest = std::max(largest, own);
  }
  std::string line = fmt::format("components: {}, {}", spec.components.size(),
                                 placement.is_everywhere() ? "all on every rank"
                                 : fewest == largest       ? fmt::format("{} of them on each rank", fewest)
                                                     : fmt::format("{} to {} of them on a rank", fewest, largest));
  for (std::size_t c = 0; c < std::min(most, spec.components.size()); ++c)
    line += fmt::format("{} {} ({:.3g} M)", c == 0 ? ":" : ",", spec.components[c].name,
                        static_cast<double>(parameters[c]) / 1e6);
  if (spec.components.size() > most) line += ", …; --print-tasks lists them";
  if (!placement.is_everywhere()) line += fmt::format("; {} sets of ranks share components", placement.groups().size());
  return line;
}

std::vector<std::string> names_of_components(const spec::ModelSpec& spec) {
  std::vector<std::string> names(spec.components.size());
  std::ranges::transform(spec.components, names.begin(), &spec::Component::name);
  return names;
}

std::vector<std::uint32_t> routes_of(const RunConfig& config, const spec::ModelSpec& spec) {
  std::vector<std::uint32_t> routes;
  if (spec.routes.size() == 1) return routes;
  for (const data::CorpusConfig& corpus : config.data.corpora)
    routes.push_back(narrow<std::uint32_t>(spec.route_of.at(corpus.name)));
  return routes;
}

}  // namespace argosy::plan
