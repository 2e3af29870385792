#include "soup/inputs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <map>
#include <set>

#include "checkpoint/load.hpp"
#include "comm/message.hpp"
#include "core/error.hpp"
#include "model/stored_spec.hpp"
#include "soup/components.hpp"

namespace argosy::soup {
namespace {

namespace json = boost::json;
using checkpoint::Reader;

[[noreturn]] void refuse(Fault fault, const Reader& reader, std::string wanted, std::string got, std::string remedy) {
  throw_error(fault, reader.directory().string(), std::move(wanted), std::move(got), std::move(remedy));
}

/// claim: "has no …", of the checkpoint.
[[noreturn]] void refuse_as(Fault fault, const Reader& reader, const std::string& claim, std::string wanted,
                            std::string got, std::string remedy) {
  const std::string where = reader.directory().string();
  throw_claim(fault, fmt::format("{} {}", where, claim), where, std::move(wanted), std::move(got), std::move(remedy));
}

constexpr const char* leave_out = "leave this checkpoint out";

/// Keys of the section `model` that must be equal, and what they mean.
constexpr std::pair<const char*, const char*> common_keys[] = {{"config_digest", "model configuration"},
                                                               {"tokenizer_digest", "tokenizer"},
                                                               {"vocab_size", "vocabulary size"},
                                                               {"tied", "set of tied weights"}};

std::string text_at(const json::object& object, const char* key) {
  const json::value* const value = object.if_contains(key);
  return value == nullptr ? "none" : config::text_of(*value, false);  // members of objects in one order
}

void check_parameters(const Reader& first, const Reader& other) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Reader::Parameter& parameter : other.parameters()) shapes.emplace(parameter.name, parameter.shape);
  for (const Reader::Parameter& parameter : first.parameters()) {
    const auto found = shapes.find(parameter.name);
    if (found == shapes.end())
      refuse_as(Fault::data, other, fmt::format("has no parameter {}, unlike the first input", parameter.name),
                "parameter " + parameter.name, "none", leave_out);
    if (found->second != parameter.shape)
      refuse(Fault::data, other, fmt::format("{} of shape [{}]", parameter.name, fmt::join(parameter.shape, ", ")),
             fmt::format("[{}]", fmt::join(found->second, ", ")), leave_out);
    shapes.erase(found);
  }
  if (!shapes.empty())
    refuse_as(Fault::data, other,
              fmt::format("has the parameter {}, which the first input does not have", shapes.begin()->first),
              "the parameters of the first input", "also " + shapes.begin()->first, leave_out);
}

/// Refuses checkpoints of other tasks, which have other components.
void check_tasks(const Reader& first, const Reader& other) {
  const spec::Sharing wanted = model::stored_sharing(first), got = model::stored_sharing(other);
  const auto without = [](const std::vector<spec::Task>& some, const std::vector<spec::Task>& those) {
    std::vector<spec::Task> rest;
    std::ranges::copy_if(some, std::back_inserter(rest),
                         [&](const spec::Task& task) { return std::ranges::find(those, task) == those.end(); });
    return rest.empty() ? "none" : spec::text_of(rest);
  };
  const std::string more = without(got.tasks, wanted.tasks), fewer = without(wanted.tasks, got.tasks);
  if (more != "none" || fewer != "none" || got.groups != wanted.groups)
    refuse_as(Fault::data, other,
              more == "none" && fewer == "none"
                  ? "has other groups of languages than the first input"
                  : fmt::format("has other tasks than the first input (added: {}; missing: {})", more, fewer),
              "the tasks of the first input, " + spec::text_of(wanted.tasks), spec::text_of(got.tasks),
              "give --components to average each component over the inputs that have it, or leave this checkpoint out");
}

void check_pair(const Reader& first, const Reader& other, const SoupConfig& config) {
  if (other.weights() != first.weights())
    refuse(Fault::data, other, fmt::format("weights of type {}, like the first input", name_of(first.weights())),
           std::string(name_of(other.weights())), leave_out);
  if (other.run_uuid() != first.run_uuid() && !config.allow_cross_run)
    refuse_as(Fault::data, other,
              fmt::format("belongs to another run ({}) than the first input ({})", other.run_uuid(), first.run_uuid()),
              "checkpoints of one run", other.run_uuid(), "leave this checkpoint out, or give --allow-cross-run");
  const bool by_language =  // each has the tokenizers of its languages
      config.components && model::share_tokenizers(first.sections().model, other.sections().model);
  for (const auto& [key, name] : common_keys) {
    const std::string wanted = text_at(first.sections().model, key), got = text_at(other.sections().model, key);
    if (got != wanted && !(by_language && std::string_view(key) == "tokenizer_digest"))
      refuse_as(Fault::data, other,
                fmt::format("has another {} than the first input ({}{}, not {})", name,
                            std::string_view(key).ends_with("_digest") ? "digest " : "", got, wanted),
                fmt::format("the {} of the first input ({})", name, wanted), got, leave_out);
  }
  if (!config.components) {
    check_tasks(first, other);
    check_parameters(first, other);
  }
  std::vector<std::string> names = first.attachments(), others = other.attachments();
  std::sort(names.begin(), names.end());
  std::sort(others.begin(), others.end());
  if (names != others) {
    const auto text = [](const auto& list) { return list.empty() ? "none" : fmt::format("{}", fmt::join(list, ", ")); };
    refuse(Fault::data, other, fmt::format("the attached files of the first input ({})", text(names)), text(others),
           leave_out);
  }
  for (const std::string& name : names) {
    if (by_language && name == tokenizer_file) continue;  // tokenizers_of_all() compares them
    if (first.attachment(name) != other.attachment(name))
      refuse_as(Fault::data, other, fmt::format("has another {} than the first input", name), "the same " + name,
                "another", leave_out);
  }
}

/// Refuses inputs with equal weights. Different directories may hold them: a step saved as a temporary checkpoint and
/// as an export, again by another number of ranks after a restart, or before and after steps that were skipped.
void check_once(const std::vector<Reader>& readers) {
  for (std::size_t i = 0; i < readers.size(); ++i) {
    for (std::size_t earlier = 0; earlier < i; ++earlier) {
      const Reader &reader = readers[i], &other = readers[earlier];
      if (other.self_digest() == reader.self_digest())
        refuse_as(Fault::usage, reader, "is given twice", "each checkpoint once", "this one twice", "give it once");
      if (other.has_weights_of(reader))
        refuse_as(Fault::usage, reader, fmt::format("has the same weights as {}", other.directory().string()),
                  "different weights in each input", "those of " + other.directory().string(),
                  "give only one of the two");
    }
  }
}

/// Checks that the inputs have the optimizer state that --optimizer needs.
void check_moments(const std::vector<Reader>& readers, const Mixture& mixture, const SoupConfig& config) {
  const std::size_t read = config.moments == Moments::avg ? readers.size() : config.moments == Moments::first ? 1 : 0;
  for (const Reader& reader : std::span{readers}.first(read)) {
    if (!reader.has_optimizer_state())
      refuse_as(Fault::data, reader, "has no optimizer state for --optimizer", "optimizer state", "weights only",
                "leave this checkpoint out, or give --optimizer zero");
  }
  if (config.moments == Moments::drop) return;
  for (const Reader& reader : readers) {
    std::string name;  // of what is not like the weights
    for (std::size_t unit = 0; unit < reader.unit_names().size(); ++unit) {
      for (const spec::StateTensor& tensor : reader.tensors(unit))
        if (name.empty() && (unit >= reader.weight_units() || !tensor.is_plain())) name = reader.unit_names()[unit];
    }
    if (!name.empty())
      refuse_as(
          Fault::data, reader,
          fmt::format("has optimizer state of other shapes than the weights ({}), which --optimizer cannot average",
                      name),
          "optimizer state with one element for each weight", "tensors of other shapes (" + name + ")",
          "leave --optimizer out");
    if (reader.sections().optimizer.empty())
      refuse_as(Fault::data, reader, "is not of a training run, as --optimizer needs", "a checkpoint of a training run",
                "another", leave_out);
    for (std::size_t unit = 0; unit < reader.weight_units() && reader.has_optimizer_state(); ++unit) {
      if (reader.tensors(unit).size() > 1) continue;
      refuse_as(Fault::data, reader,
                fmt::format("has no optimizer state of {}, which its run does not train", reader.unit_names()[unit]),
                "optimizer state of all weights", "of a part of them", "leave --optimizer out");
    }
  }
  const bool negative = std::ranges::any_of(mixture.weights, [&](double w) { return w / mixture.divisor < 0; });
  if (config.moments == Moments::avg && negative)
    throw_claim(Fault::usage, "--optimizer avg needs weights of 0 or more, since second moments are never negative",
                "--weights", "weights of 0 or more for --optimizer avg", "a negative one",
                "give --optimizer zero or first");
}

void check_members(const std::vector<Reader>& readers, const SoupConfig& config) {
  for (const Reader& reader : readers) {
    model::require_own_parameters(reader);
    if (model::stored_lora(reader))
      refuse_as(Fault::data, reader, "has adapters, and their means are not those of the matrices they stand for",
                "whole matrices", "adapters (lora)",
                fmt::format("merge them first: apps/export CHECKPOINT{} --format argosy --out FOLDER",
                            model::stored_sharing(reader).tasks.empty() ? "" : " --task TASK"));
    if (!reader.finite()) refuse(Fault::data, reader, "finite weights", "NaN or Inf", leave_out);
    if (!reader.sections().soup.empty() && !config.allow_soup)
      refuse_as(Fault::data, reader, "is a soup", "a checkpoint of a training run", "a soup",
                "leave it out, or give --allow-soup");
    check_pair(readers.front(), reader, config);
  }
}

/// Metrics are numbers by name, or by set and name.
void collect_metrics(const json::object& metrics, const std::string& prefix, std::map<std::string, double>& found) {
  for (const auto& member : metrics) {
    const std::string name = prefix + std::string(member.key());
    if (member.value().is_object()) collect_metrics(member.value().get_object(), name + ".", found);
    if (member.value().is_number()) found.emplace(name, member.value().to_number<double>());
  }
}

}  // namespace

Mean Inputs::mean() const {
  Mean all{.mixture = mixture, .whole = whole ? &*whole : nullptr};
  for (const Reader& reader : readers) all.readers.push_back(&reader);
  return all;
}

Mean Inputs::mean_of(const std::vector<std::size_t>& members) const {
  Mean some{.mixture = uniform_mixture(members.size())};
  for (const std::size_t member : members) some.readers.push_back(&readers[member]);
  return some;
}

std::vector<std::string> checkpoints_among(comm::Context& context, const std::vector<std::string>& paths) {
  std::vector<std::string> checkpoints;
  comm::at_root(context.world, [&] {
    for (const std::string& given : paths) {
      Path path = Path{given}.lexically_normal();
      if (!path.has_filename()) path = path.parent_path();
      const std::string name = path.filename().string();
      if (name.starts_with(".tmp-") || name.starts_with(".del-"))
        throw_error(Fault::data, path.string(), "a committed checkpoint",
                    name.starts_with(".tmp-") ? "one that was never committed" : "one that is being removed",
                    leave_out);
      const auto facts = context.files.stat(path);
      if (facts && !facts->is_directory) {
        context.log.warn("{} is a file, not a checkpoint: skipped", path.string());
      } else {
        checkpoints.push_back(path.string());
      }
    }
  });
  return comm::from_message<std::vector<std::string>>(context.world.broadcast(comm::to_message(checkpoints)));
}

Inputs open_inputs(comm::Context& context, const SoupConfig& config) {
  const std::vector<std::string> paths = checkpoints_among(context, config.inputs);
  Inputs found;
  // The other ranks get paths, manifests and weights from rank 0, so that all have the same mixture.
  found.readers = checkpoint::share(context, [&] {
    std::vector<Reader> readers;
    readers.reserve(paths.size());
    for (const std::string& path : paths) readers.emplace_back(context.files, context.files.follow_links(path));
    for (Reader& reader : readers)
      if (config.ema && reader.has_ema()) reader.use_ema();
    check_once(readers);
    std::vector<Candidate> candidates;
    for (const Reader& reader : readers) {
      candidates.push_back({.name = reader.directory().string(), .step = reader.step()});
      collect_metrics(reader.sections().metrics, "", candidates.back().metrics);
    }
    found.mixture = mixture_of(config.recipe, candidates);
    std::vector<Reader> members;
    members.reserve(found.mixture.members.size());
    for (const std::size_t member : found.mixture.members) members.push_back(std::move(readers[member]));
    check_members(members, config);
    check_moments(members, found.mixture, config);
    return members;
  });
  if (config.ema) std::ranges::for_each(found.readers, &Reader::use_ema);
  found.mixture.weights.push_back(found.mixture.divisor);
  found.mixture.weights = context.world.broadcast(found.mixture.weights);
  found.mixture.divisor = found.mixture.weights.back();
  found.mixture.weights.pop_back();
  comm::agree(context.world, [&] {
    if (!config.components) return;
    found.whole = model_of_all_tasks(found.readers);
    if (context.is_root()) static_cast<void>(tokenizers_of_all(found.mean()));
    static_cast<void>(owners_of(found.mean()));
  });
  return found;
}

std::vector<std::string> table_of(const Inputs& inputs) {
  const std::vector<Reader>& readers = inputs.readers;
  std::vector<std::map<std::string, double>> metrics(readers.size());
  std::set<std::string> columns;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    collect_metrics(readers[i].sections().metrics, "", metrics[i]);
    for (const auto& [name, value] : metrics[i]) columns.insert(name);
  }
  std::vector<std::string> lines(1, fmt::format("{:>9}", "step"));
  for (const std::string& column : columns) lines[0] += fmt::format("  {:>12}", column);
  lines[0] += "    weight  checkpoint";
  for (std::size_t i = 0; i < readers.size(); ++i) {
    std::string line = fmt::format("{:>9}", readers[i].step());
    for (const std::string& column : columns) {
      const auto value = metrics[i].find(column);
      const std::size_t width = std::max<std::size_t>(column.size(), 12);
      line += "  " + (value == metrics[i].end() ? fmt::format("{:>{}}", "-", width)
                                                : fmt::format("{:>{}.6g}", value->second, width));
    }
    lines.push_back(fmt::format("{}  {:>8.4g}  {}", line, inputs.mixture.weights[i] / inputs.mixture.divisor,
                                readers[i].directory().string()));
  }
  return lines;
}

}  // namespace argosy::soup
