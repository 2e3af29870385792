#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "spec/embeddings.hpp"
#include "spec/model_spec.hpp"

namespace argosy::spec {

std::string table_name(const Architecture& is, VisitKind kind, const Task& task) {
  const char* const name = kind == VisitKind::head && !is.tie_embeddings ? "output"
                           : is.tie_inputs                               ? "embeddings"
                           : kind == VisitKind::source                   ? "source_embeddings"
                                                                         : "target_embeddings";
  return fmt::format("{}.{}", name, language_of(kind, task));
}

void require_group(Fault fault, Share share, const Task& task, const Sharing& sharing) {
  if (share != Share::source_group && share != Share::target_group) return;
  const std::string& language = share == Share::source_group ? task.source : task.target;
  if (!group_of(sharing, language).empty()) return;
  throw_claim(fault,
              fmt::format("the task {} needs the group of the language {}, which is in none", task.name, language),
              "groups", "a group with " + language, "none", "add it to a group, since layers are shared by groups");
}

namespace {

/// The part of a model that these visits are.
RouteModel part_of(const ModelSpec& whole, const std::vector<std::size_t>& visits) {
  RouteModel model{.spec = as_plain(whole.architecture), .stored = {}};
  for (std::size_t v = 0; Visit & visit : model.spec.visits) {
    const Visit& of_whole = whole.visits[visits[v++]];
    const std::string& prefix = of_whole.prefix;
    for (const std::size_t unit : visit.units) {
      for (const Parameter& parameter : model.spec.units[unit].parameters) {
        if (whole.architecture.embeddings_by_language && parameter.is_by_id()) {
          const bool is_input = parameter.role == Role::source_embedding && whole.architecture.tie_inputs;
          const auto& own = whole.units[of_whole.units.front()].parameters;
          const auto found =
              std::ranges::find(own, is_input ? Role::target_embedding : parameter.role, &Parameter::role);
          if (found != own.end()) model.stored.emplace(parameter.name, found->name);
          continue;
        }
        const bool is_of_block = !visit.prefix.empty() && parameter.name.starts_with(visit.prefix + "/");
        const std::string name = is_of_block && unit == visit.units.front()
                                     ? prefix + parameter.name.substr(visit.prefix.size())
                                     : parameter.name;
        model.stored.emplace(parameter.name, name);
      }
    }
    for (const std::size_t unit : of_whole.units) {
      if (!whole.units[unit].has_adapters()) continue;
      Unit adapters{.name = visit.name + ".adapters", .parameters = whole.units[unit].parameters};
      for (Parameter& parameter : adapters.parameters) {
        std::string name = visit.prefix + parameter.name.substr(prefix.size());
        model.stored.emplace(name, std::exchange(parameter.name, name));
      }
      visit.units.push_back(model.spec.units.size());
      model.spec.units.push_back(std::move(adapters));
    }
  }
  return model;
}

}  // namespace

RouteModel model_of_route(const ModelSpec& whole, std::size_t route) { return part_of(whole, whole.routes[route]); }

RouteModel model_of_task(const ModelSpec& whole, const Task& task) {
  const Architecture& is = whole.architecture;
  std::map<std::pair<VisitKind, std::int64_t>, std::string> wanted;  // component by kind and layer
  for (const VisitKind kind : {VisitKind::encoder_block, VisitKind::decoder_block}) {
    const bool encodes = kind == VisitKind::encoder_block;
    for (std::int64_t layer = 0; const StackConfig& stack : encodes ? is.encoder_stacks : is.decoder_stacks) {
      require_group(Fault::usage, stack.share, task, whole.sharing);
      const std::string name = component_name(encodes ? "encoder" : "decoder", stack.share, task, whole.sharing);
      for (std::int64_t end = layer + stack.layers; layer < end; ++layer)
        if (!name.empty()) wanted.emplace(std::pair{kind, layer}, name);
    }
  }
  if (is.embeddings_by_language)
    for (const VisitKind kind : kinds_by_language) wanted.emplace(std::pair{kind, 0}, table_name(is, kind, task));
  std::vector<std::size_t> visits;
  std::set<std::pair<VisitKind, std::int64_t>> found;
  for (std::size_t v = 0; v < whole.visits.size(); ++v) {
    const Visit& visit = whole.visits[v];
    const std::string& component = whole.components[whole.units[visit.units.front()].component].name;
    const auto own = wanted.find({visit.kind, visit.layer});
    if (own != wanted.end() && own->second != component) continue;
    visits.push_back(v);
    found.insert({visit.kind, visit.layer});
  }
  const auto missing = std::ranges::find_if(wanted, [&](const auto& own) { return !found.contains(own.first); });
  if (missing == wanted.end()) return part_of(whole, visits);
  const VisitKind kind = missing->first.first;
  const std::string claim = std::ranges::count(kinds_by_language, kind) > 0
                                ? fmt::format("the task {} {} {}, which no task of the model does", task.name,
                                              kind == VisitKind::source ? "reads" : "writes", language_of(kind, task))
                                : fmt::format("the task {} needs the component {}, which the model does not have",
                                              task.name, missing->second);
  throw_claim(Fault::usage, claim, "--task", "a task for which each stack has its component", task.name,
              fmt::format("its tasks are {}", text_of(whole.sharing.tasks)));
}

}  // namespace argosy::spec
