#include "plan/sharing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.hpp"

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

/// How stacks are shared.
std::set<spec::Share> shares_of(const spec::ModelConfig& model) {
  std::set<spec::Share> shares;
  for (const spec::SideConfig* side : {&model.encoder, &model.decoder})
    for (const spec::StackConfig& stack : side->stacks) shares.insert(stack.share);
  return shares;
}

}  // namespace

void validate_sharing(const RunConfig& config, Problems& problems) {
  const std::set<spec::Share> shares = shares_of(config.model);
  const bool by_source = shares.contains(spec::Share::source_group),
             by_target = shares.contains(spec::Share::target_group);
  problems.require(config.groups.empty() || by_source || by_target, "/groups",
                   "absent, since no stack has share source_group or target_group", "groups");
  problems.require(config.loss.normalise == LossNormalisation::step || !spec::is_plain(config.model), "/loss/normalise",
                   "step, since no stack has a share other than all", "component");
  if (spec::is_plain(config.model) || is_language_model(config)) return;
  problems.require(!config.lora, "/lora", "absent, since the model has stacks that only some tasks share", "adapters",
                   "export the model of one task, and train its adapters");
  problems.require(!config.data.split, "/data/split", "absent, since the model has stacks that only some tasks share",
                   "a split", "set validation.sets, each with its corpus");
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
                     "two codes, since the model has stacks that only some tasks share",
                     fmt::format("{} in corpus {}", corpus.languages.size(), corpus.name));
    problems.require(std::ranges::all_of(corpus.languages, spec::is_name), "/languages",
                     fmt::format("codes of {}, since components have their names", spec::name_rule),
                     fmt::format("{} in corpus {}", fmt::join(corpus.languages, ", "), corpus.name));
    problems.require(spec::is_name(corpus.name), "/name",
                     fmt::format("{}, since components have such names", spec::name_rule), corpus.name);
    languages.insert(corpus.languages.begin(), corpus.languages.end());
  }
  validate_groups(config, languages, problems);
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
                     "the name of the corpus that the set is for, since it decides which stacks are used", "none");
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

std::vector<std::string> task_lines(const spec::ModelSpec& spec) {
  if (spec.sharing.tasks.empty()) return {"the model has no stacks that only some tasks share"};
  std::vector<std::string> lines{
      fmt::format("{} tasks, {} components, all on every rank", spec.sharing.tasks.size(), spec.components.size()),
      fmt::format("  {:<24} {:>15}  tasks", "component", "parameters")};
  const std::vector<std::int64_t> parameters = parameters_of(spec);
  for (std::size_t c = 0; c < spec.components.size(); ++c)
    lines.push_back(fmt::format("  {:<24} {:>15}  {}", spec.components[c].name, parameters[c],
                                fmt::join(spec.components[c].tasks, ", ")));
  lines.push_back(fmt::format("  {:<24} {:>15}  components", "task", "parameters"));
  for (const spec::Task& task : spec.sharing.tasks) {
    std::vector<std::string> names;
    std::int64_t all = 0;
    for (std::size_t c = 0; c < spec.components.size(); ++c) {
      if (std::ranges::count(spec.components[c].tasks, task.name) == 0) continue;
      names.push_back(spec.components[c].name);
      all += parameters[c];
    }
    lines.push_back(fmt::format("  {:<24} {:>15}  {}", task.name, all, fmt::join(names, ", ")));
  }
  return lines;
}

std::string components_line(const spec::ModelSpec& spec) {
  constexpr std::size_t most = 8;
  if (spec.components.size() == 1) return {};
  const std::vector<std::int64_t> parameters = parameters_of(spec);
  std::string line = fmt::format("components: {}, all on every rank", spec.components.size());
  for (std::size_t c = 0; c < std::min(most, spec.components.size()); ++c)
    line += fmt::format("{} {} ({:.3g} M)", c == 0 ? ":" : ",", spec.components[c].name,
                        static_cast<double>(parameters[c]) / 1e6);
  if (spec.components.size() > most) line += ", …; --print-tasks lists them";
  return line;
}

std::vector<std::string> names_of_routes(const spec::ModelSpec& spec) {
  constexpr std::size_t most_tasks = 3;
  std::vector<std::string> names;
  if (spec.routes.size() == 1) return names;
  std::vector<std::vector<std::string>> tasks(spec.routes.size());
  for (const auto& [task, route] : spec.route_of) tasks[route].push_back(task);
  for (std::vector<std::string>& own : tasks) {
    const std::size_t more = own.size() - std::min(own.size(), most_tasks);
    own.resize(own.size() - more);
    names.push_back(fmt::format("{}{}", fmt::join(own, "+"), more > 0 ? fmt::format("+{} more", more) : ""));
  }
  return names;
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
