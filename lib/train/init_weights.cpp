#include "train/init_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/describe/enum_to_string.hpp>
#include <cmath>
#include <ranges>
#include <set>

#include "core/error.hpp"
#include "model/model.hpp"

namespace argosy::train {
namespace {

/// "a, b, c and 4 more"
std::string listed(std::vector<std::string> names) {
  constexpr std::size_t most = 8;
  const std::size_t all = names.size();
  if (all > most) names.resize(most);
  return fmt::format("{}{}", fmt::join(names, ", "), all > most ? fmt::format(" and {} more", all - most) : "");
}

std::string text_of(const spec::Vocabulary& vocabulary) {
  const auto text = [](const std::optional<std::int64_t>& id) { return id ? std::to_string(*id) : "none"; };
  return fmt::format("eos {}, unk {}, bos {}, pad {}, start {}", vocabulary.eos, text(vocabulary.unk),
                     text(vocabulary.bos), text(vocabulary.pad), vocabulary.start);
}

/// The keys of `model` by which two architectures compute different things with weights of equal shapes, as
/// "model.heads: 4, there 2". Layers are compared by their parameters.
std::vector<std::string> differences(const spec::Architecture& ours, const spec::Architecture& theirs,
                                     const plan::InitSource& source) {
  std::vector<std::string> keys;
  const auto compare = [&](const char* key, const auto& own, const auto& other) {
    if (own != other) keys.push_back(fmt::format("model.{}: {}, there {}", key, own, other));
  };
  const auto name = [](auto value) { return std::string(boost::describe::enum_to_string(value, "")); };
  const bool blocks = source.has("encoder") || source.has("decoder");
  compare("width", ours.width, theirs.width);
  if (source.has("embeddings")) compare("token_ids", text_of(ours.vocabulary), text_of(theirs.vocabulary));
  if (!blocks) return keys;
  compare("ff", ours.ff, theirs.ff);
  compare("heads", ours.heads, theirs.heads);
  compare("kv_heads", ours.kv_heads, theirs.kv_heads);
  compare("head_size", ours.head_size, theirs.head_size);
  compare("norm", name(ours.norm), name(theirs.norm));
  compare("norm_position", name(ours.norm_position), name(theirs.norm_position));
  compare("activation", name(ours.activation), name(theirs.activation));
  compare("norm_epsilon", ours.norm_epsilon, theirs.norm_epsilon);
  compare("bias", ours.bias, theirs.bias);
  compare("qkv_bias", ours.qkv_bias, theirs.qkv_bias);
  compare("embedding_scale", ours.scales_embeddings, theirs.scales_embeddings);
  compare("window", ours.window.value_or(0), theirs.window.value_or(0));
  if (source.reinit_positions) return keys;
  if (source.has("encoder") && theirs.encoder_layers > 0)
    compare("encoder.position", name(ours.encoder_position), name(theirs.encoder_position));
  if (source.has("decoder")) compare("decoder.position", name(ours.decoder_position), name(theirs.decoder_position));
  if (ours.uses(spec::Position::rope)) {
    compare("rope_theta", ours.rope_theta, theirs.rope_theta);
    const auto text = [](const std::optional<spec::RopeScaling>& scaling) {
      return scaling ? fmt::format("{} {} {} {}", scaling->factor, scaling->low_freq_factor, scaling->high_freq_factor,
                                   scaling->original_max_positions)
                     : "none";
    };
    compare("rope_scaling", text(ours.rope_scaling), text(theirs.rope_scaling));
  }
  return keys;
}

/// Throws Error{config} where embeddings that the source gives belong to another tokenizer.
void require_tokenizer(const plan::InitSource& source, const spec::ModelSpec& spec, const data::Tokenizer& ours,
                       const model::StoredModel& model) {
  std::set<std::string> names, languages;  // of its parameters; of embeddings: "fr" of "embeddings.fr/weight"
  for (const spec::Unit& unit : model.spec.units)
    for (const spec::Parameter& parameter : unit.parameters) names.insert(parameter.name);
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) {
      if (!parameter.is_by_id() || !source.covers(parameter) || !names.contains(parameter.name)) continue;
      const std::string component = parameter.name.substr(0, parameter.name.find('/'));
      const std::size_t dot = component.find('.');
      languages.insert(dot == std::string::npos ? "" : component.substr(dot + 1));
    }
  }
  for (const std::string& language : languages) {
    const std::array own{language};
    const Digest got = model.tokenizer.of(own).digest(), wanted = ours.of(own).digest();
    if (got == wanted) continue;
    throw_claim(Fault::config,
                fmt::format("init_from {}: its embeddings{} belong to another tokenizer than data.tokenizer",
                            source.from, language.empty() ? "" : fmt::format(" of the language {}", language)),
                "init_from " + source.from, wanted.hex(), got.hex(),
                "set data.tokenizer to the tokenizer of that model, or leave embeddings out of components");
  }
}

}  // namespace

InitialWeights::InitialWeights(comm::Context& context, const plan::RunConfig& config, const spec::ModelSpec& spec,
                               const data::Tokenizer& tokenizer, const OpenModel& open,
                               const OpenAdapters& open_adapters)
    : seed_(config.seed) {
  const std::vector<plan::InitSource> sources =
      config.init_from ? config.init_from->sources : std::vector<plan::InitSource>{};
  for (const plan::InitSource& source : sources) {
    auto adapters = open_adapters ? open_adapters(context, source.from, spec) : nullptr;
    if (adapters != nullptr) {
      opened_.push_back({source, std::nullopt, std::move(adapters)});
    } else {
      opened_.push_back({source, open(context, source.from), nullptr});
    }
  }
  comm::agree(context.world, [&] {
    for (std::size_t s = 0; s < opened_.size(); ++s) {
      const plan::InitSource& source = opened_[s].source;
      if (!opened_[s].model) {
        use_adapters(s, spec);
        continue;
      }
      const model::StoredModel& model = *opened_[s].model;
      const std::string where = "init_from " + source.from;
      const std::vector<std::string> keys = differences(spec.architecture, model.spec.architecture, source);
      if (!keys.empty())
        throw_claim(Fault::config, fmt::format("{}: the model is another one ({})", where, fmt::join(keys, "; ")),
                    where, "the same model", keys.front(), "set these keys as there, or leave these components out");
      require_tokenizer(source, spec, tokenizer, model);
      match(s, spec);
    }
    if (!opened_.empty()) look_for_new(config, spec);
  });
}

void InitialWeights::look_for_new(const plan::RunConfig& config, const spec::ModelSpec& spec) {
  std::vector<std::string> fresh, untrained;
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) {
      if (parameter.is_adapter() || found_.contains(parameter.name)) continue;
      fresh.push_back(parameter.name);
      if (unit.frozen) untrained.push_back(parameter.name);
    }
  }
  if (config.lora && !untrained.empty())
    throw_claim(
        Fault::config,
        fmt::format("lora trains adapters next to weights that exist, and init_from has no {}", listed(untrained)),
        "init_from", "all weights that lora freezes", "none of that name",
        "name another model as well (if it lacks positions alone, leave reinit_positions out), or train these parts "
        "first, without lora");
  if (!fresh.empty()) lines_.push_back(fmt::format("new, with random values: {}", listed(fresh)));
}

void InitialWeights::use_adapters(std::size_t s, const spec::ModelSpec& spec) {
  for (const spec::Unit& unit : spec.units)
    for (const spec::Parameter& parameter : unit.parameters)
      if (parameter.is_adapter()) found_[parameter.name] = {s, &parameter};
  lines_.push_back(fmt::format("init_from {}: the adapters", opened_[s].source.from));
}

void InitialWeights::match(std::size_t s, const spec::ModelSpec& spec) {
  const plan::InitSource& source = opened_[s].source;
  const model::StoredModel& model = *opened_[s].model;
  std::map<std::string, const spec::Parameter*> theirs;
  for (const spec::Unit& unit : model.spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) theirs.emplace(parameter.name, &parameter);
  }
  const std::string where = "init_from " + source.from;
  for (const std::string& component : source.components) {
    const auto is_here = [&](const spec::Parameter& parameter) { return spec::is_of(parameter, component); };
    if (component.find('.') == std::string::npos || std::ranges::any_of(spec.units, [&](const spec::Unit& unit) {
          return std::ranges::any_of(unit.parameters, is_here);
        }))
      continue;
    std::vector<std::string> names;
    for (const spec::Component& each : spec.components | std::views::drop(1)) names.push_back(each.name);
    throw_claim(
        Fault::config, fmt::format("{}: the model has no component {}", where, component), where,
        fmt::format("encoder.all, decoder.all{}", names.empty() ? "" : fmt::format(", {}", fmt::join(names, ", "))),
        component, "correct components");
  }
  std::vector<std::string> missing, misshapen;
  std::set<std::string> used;
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) {
      if (parameter.is_adapter() || !source.covers(parameter)) continue;
      const auto there = theirs.find(parameter.name);
      if (there == theirs.end()) {
        missing.push_back(parameter.name);
      } else if (there->second->shape != parameter.shape) {
        misshapen.push_back(fmt::format("{} {}, there {}", parameter.name, spec::text_of(parameter.shape),
                                        spec::text_of(there->second->shape)));
      } else {
        used.insert(parameter.name);
        found_[parameter.name] = {s, there->second};
      }
    }
  }
  if (!misshapen.empty())
    throw_claim(Fault::config, fmt::format("{}: parameters have other shapes ({})", where, listed(misshapen)), where,
                "equal shapes", misshapen.front(), "change the keys of model, or leave these components out");
  if (!missing.empty() && !source.allow_new)
    throw_claim(Fault::config, fmt::format("{}: it has no {}", where, listed(missing)), where,
                "every parameter of the model", "none of that name",
                "set allow_new to begin with random values for them");
  if (used.empty())
    throw_claim(Fault::config, fmt::format("{}: nothing of it can be used", where), where, "parameters of the model",
                "none", "correct init_from");
  std::vector<std::string> unused;
  for (const auto& [name, parameter] : theirs)
    if (source.covers(*parameter) && !used.contains(name)) unused.push_back(name);
  lines_.push_back(fmt::format("init_from {}: {} parameters loaded{}", source.from, used.size(),
                               unused.empty() ? "" : fmt::format("; unused: {}", listed(unused))));
}

void InitialWeights::fill(const spec::Parameter& parameter, std::int64_t begin, std::int64_t end, float* values) const {
  const auto found = found_.find(parameter.name);
  if (found == found_.end()) return model::initial_values(parameter, seed_, begin, end, values);
  const auto& [source, theirs] = found->second;
  const std::span<float> to{values, static_cast<std::size_t>(end - begin)};
  const Opened& opened = opened_[source];
  (opened.model ? *opened.model->weights : *opened.adapters).read(*theirs, begin, to);
  if (!std::ranges::all_of(to, [](float value) { return std::isfinite(value); }))
    throw_error(Fault::numeric, fmt::format("{}, {}", opened_[source].source.from, parameter.name), "finite weights",
                "NaN or infinity", "begin with another model");
}

std::string InitialWeights::summary() const {
  std::vector<std::string> from;
  for (const Opened& each : opened_)
    from.push_back(each.model ? fmt::format("{} (step {}, {})", each.source.from, each.model->step, each.model->id)
                              : each.source.from + " (adapters)");
  return fmt::format("initial weights from {}", fmt::join(from, ", "));
}

}  // namespace argosy::train
