#include "spec/fine_tuning.hpp"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <ranges>

#include "core/error.hpp"

namespace argosy::spec {
namespace {

constexpr std::string_view weight_ending = "/weight", all_linear = "all_linear";

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || fnmatch(("*/" + pattern).c_str(), name.c_str(), 0) == 0;
}

bool is_linear(Role role) {
  constexpr std::array linear{Role::attention_qkv, Role::attention_query, Role::attention_key_value,
                              Role::attention_out, Role::ffn_in,          Role::ffn_out};
  return std::ranges::count(linear, role) > 0;
}

/// Freezes parameters. A unit of which only some are frozen becomes two, which the same visits read, the larger first:
/// only a visit's first unit may take turns in a buffer.
void freeze(ModelSpec& spec, const std::function<bool(const Parameter&)>& is_frozen) {
  const std::size_t units = spec.units.size();
  for (std::size_t u = 0; u < units; ++u) {
    std::vector<Parameter>& all = spec.units[u].parameters;
    const auto first_frozen = std::stable_partition(all.begin(), all.end(), std::not_fn(is_frozen));
    if (first_frozen == all.end()) continue;
    if (first_frozen == all.begin()) {
      spec.units[u].frozen = true;
      continue;
    }
    Unit frozen = spec.units[u];
    frozen.name += ".frozen";
    frozen.parameters.assign(std::make_move_iterator(first_frozen), std::make_move_iterator(all.end()));
    frozen.frozen = true;
    all.erase(first_frozen, all.end());
    const auto size = [](const Unit& unit) {
      std::int64_t numel = 0;
      for (const Parameter& parameter : unit.parameters) numel += parameter.numel();
      return numel;
    };
    const bool frozen_first = size(frozen) > size(spec.units[u]);
    for (Visit& visit : spec.visits) {
      const auto at = std::ranges::find(visit.units, u);
      if (at != visit.units.end()) visit.units.insert(frozen_first ? at : std::next(at), spec.units.size());
    }
    spec.units.push_back(std::move(frozen));
  }
}

/// The adapters of one matrix; none if no target matches it or one of its parts. used: by target, whether it matches.
std::vector<Parameter> adapters_of(const Parameter& matrix, const LoraConfig& config, std::vector<bool>& used) {
  const std::int64_t rank = *config.rank, in = matrix.shape.back();
  const auto is_target = [&](const std::string& name) {
    bool any = false;
    for (std::size_t t = 0; t < used.size(); ++t) {
      const std::string& target = config.targets.items[t];
      if (target != all_linear && !matches(target, name) && !is_of(matrix, target)) continue;
      used[t] = any = true;
    }
    return any;
  };
  const AdapterNames names = *adapter_names(matrix.name);
  const std::string layer = matrix.name.substr(0, matrix.name.size() - weight_ending.size());
  Parameter down{{names.down, {0, in}}, Role::adapter_down, {.uniform = 1 / std::sqrt(static_cast<double>(in))}},
      up{{names.up, {0, rank}}, Role::adapter_up};
  up.scale = adapter_scale(config);
  down.dropout = config.dropout;
  const auto add = [&](std::int64_t rows) {
    down.shape.front() += rank;
    up.shape.front() += rows;
  };
  for (const Part& part : matrix.parts) {
    const bool whole = is_target(layer);
    if (!is_target(fmt::format("{}/{}", layer, part.name)) && !whole) continue;
    down.parts.push_back({part.name, rank});
    up.parts.push_back({part.name, part.rows});
    add(part.rows);
  }
  if (matrix.parts.empty() && is_target(layer)) add(matrix.shape.front());
  if (up.shape.front() == 0) return {};
  return {std::move(down), std::move(up)};
}

[[noreturn]] void refuse_target(const ModelSpec& spec, const std::string& target) {
  bool by_id = false;
  for (const Unit& unit : spec.units) {
    for (const Parameter& parameter : unit.parameters)
      by_id = by_id || (parameter.is_by_id() && (matches(target, parameter.name) ||
                                                 matches(target + "/*", parameter.name) || is_of(parameter, target)));
  }
  std::vector<std::string> parts{"encoder", "decoder"};
  for (const Component& component : spec.components | std::views::drop(1)) parts.push_back(component.name);
  throw_error(
      Fault::config, "lora.targets",
      fmt::format("all_linear, patterns of linear layers of blocks, or parts ({})", fmt::join(parts, ", ")),
      fmt::format("\"{}\", which matches {}", target, by_id ? "an embedding or the output matrix" : "none of them"),
      by_id ? "leave it out, and set lora.train_embeddings to true, which trains these matrices in full"
            : "use a pattern such as \"query\", \"self_attention/*\" or \"decoder/*/ffn/linear_1\"");
}

}  // namespace

std::span<const config::KeyText> key_texts(const LoraConfig&) {
  static constexpr std::array<config::KeyText, 6> texts{{
      {"rank",
       "rows of A for each matrix; auto: the largest of 512, 256, 128, 64, 32, 16 that leaves 10 % of memory free"},
      {"alpha",
       "the adapters' product is multiplied by alpha/rank, with rslora by alpha/√rank; default: the rank, with "
       "rslora 16"},
      {"rslora", "true: the factor is alpha/√rank"},
      {"dropout", "of the input of the adapters alone, in training"},
      {"targets",
       "layers that get adapters: all_linear (all linear layers of the blocks), patterns such as \"query\", "
       "\"self_attention/*\" or \"decoder/*/ffn/linear_1\", or parts such as \"encoder\" or \"decoder.fr\""},
      {"train_embeddings",
       "true: embeddings and output matrix are trained in full; auto: if init_from has none of them, or is a model to "
       "whose vocabulary export --vocab-extend has added pieces"},
  }};
  return texts;
}

void validate(const LoraConfig& config, config::Problems& problems) {
  if (config.rank)
    problems.require(*config.rank >= 1 && *config.rank <= most_adapter_rank, "/rank",
                     fmt::format("1 to {}", most_adapter_rank), *config.rank);
  if (config.alpha) problems.require(*config.alpha > 0, "/alpha", "a number above 0", *config.alpha);
  problems.require(config.dropout >= 0 && config.dropout < 1, "/dropout", "a number in [0, 1)", config.dropout);
  problems.require(!config.targets.items.empty(), "/targets", "at least one pattern", "none");
}

double adapter_scale(const LoraConfig& config) {
  const auto rank = static_cast<double>(*config.rank);
  return config.rslora ? config.alpha.value_or(16) / std::sqrt(rank) : config.alpha.value_or(rank) / rank;
}

ModelSpec with_adapters(ModelSpec spec, const LoraConfig& config) {
  freeze(spec, [&](const Parameter& parameter) {
    return !(config.train_embeddings.value_or(false) && parameter.is_by_id());
  });
  std::vector<bool> used(config.targets.items.size());
  const std::size_t units = spec.units.size();
  for (std::size_t u = 0; u < units; ++u) {
    if (!spec.units[u].is_block) continue;
    Unit unit{.name = spec.units[u].name + ".adapters", .parameters = {}, .component = spec.units[u].component};
    for (const Parameter& parameter : spec.units[u].parameters) {
      if (!is_linear(parameter.role)) continue;
      std::ranges::move(adapters_of(parameter, config, used), std::back_inserter(unit.parameters));
    }
    if (unit.parameters.empty()) continue;
    for (Visit& visit : spec.visits)
      if (visit.units.front() == u) visit.units.push_back(spec.units.size());
    spec.units.push_back(std::move(unit));
  }
  if (const auto unused = std::ranges::find(used, false); unused != used.end())
    refuse_target(spec, config.targets.items[static_cast<std::size_t>(unused - used.begin())]);
  return spec;
}

ModelSpec with_frozen(ModelSpec spec, std::span<const std::string> patterns) {
  std::vector<bool> used(patterns.size());
  freeze(spec, [&](const Parameter& parameter) {
    bool any = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!matches(patterns[i], parameter.name) && !is_of(parameter, patterns[i])) continue;
      used[i] = any = true;
    }
    return any;
  });
  if (const auto unused = std::ranges::find(used, false); unused != used.end())
    throw_error(Fault::config, "freeze", "patterns of parameters",
                fmt::format("\"{}\", which matches none", patterns[static_cast<std::size_t>(unused - used.begin())]),
                "use a pattern such as \"encoder/*\", \"layer_norm/*\" or \"decoder/embeddings/weight\"");
  if (std::ranges::all_of(spec.units, &Unit::frozen))
    throw_error(Fault::config, "freeze", "parameters that are trained", "patterns that match all of them",
                "leave out a pattern");
  return spec;
}

TrainedCount trained_count(const ModelSpec& spec) {
  TrainedCount count;
  for (const Unit& unit : spec.units) {
    for (const Parameter& parameter : unit.parameters) {
      count.all += parameter.numel();
      if (!unit.frozen) count.trained += parameter.numel();
    }
  }
  return count;
}

std::optional<AdapterNames> adapter_names(std::string_view weight) {
  if (!weight.ends_with(weight_ending)) return std::nullopt;
  weight.remove_suffix(weight_ending.size());
  return AdapterNames{fmt::format("{}/lora_A", weight), fmt::format("{}/lora_B", weight)};
}

std::vector<AdapterPart> adapter_parts(const Parameter& matrix, const Parameter& down, const Parameter& up) {
  const std::int64_t rank = up.shape.back();
  if (matrix.parts.empty()) return {{.rows = matrix.shape.front(), .rank = rank}};
  std::vector<AdapterPart> parts;
  AdapterPart next{.rank = rank};
  for (const Part& part : matrix.parts) {
    next.rows = part.rows;
    if (std::ranges::count(down.parts, part.name, &Part::name) > 0) {
      parts.push_back(next);
      next.down += rank;
      next.up += part.rows;
    }
    next.begin += part.rows;
  }
  return parts;
}

}  // namespace argosy::spec
