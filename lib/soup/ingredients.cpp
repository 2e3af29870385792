#include "soup/ingredients.hpp"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <map>
#include <set>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"

namespace argosy::soup {
namespace {

namespace json = boost::json;
using checkpoint::Reader;

[[noreturn]] void refuse(Fault fault, const Reader& reader, std::string wanted, std::string got, std::string remedy) {
  throw Error{fault,
              {.wanted = std::move(wanted),
               .got = std::move(got),
               .where = reader.directory().string(),
               .remedy = std::move(remedy)}};
}

constexpr const char* leave_out = "leave it out";

/// What the section `model` must have in common: key, and what people call it.
constexpr std::pair<const char*, const char*> common_keys[] = {{"config_digest", "model configuration"},
                                                               {"tokenizer_digest", "tokenizer"},
                                                               {"vocab_size", "vocabulary size"},
                                                               {"tied", "set of tied weights"}};

std::string text_at(const json::object& object, const char* key) {
  const json::value* const value = object.if_contains(key);
  return value == nullptr ? "none" : json::serialize(*value);
}

void check_parameters(const Reader& first, const Reader& other) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Reader::Parameter& parameter : other.parameters()) shapes.emplace(parameter.name, parameter.shape);
  for (const Reader::Parameter& parameter : first.parameters()) {
    const auto found = shapes.find(parameter.name);
    if (found == shapes.end())
      refuse(Fault::data, other, "parameter " + parameter.name + " as in the first ingredient", "none", leave_out);
    if (found->second != parameter.shape) {
      refuse(Fault::data, other, fmt::format("{} of shape [{}]", parameter.name, fmt::join(parameter.shape, ", ")),
             fmt::format("[{}]", fmt::join(found->second, ", ")), leave_out);
    }
    shapes.erase(found);
  }
  if (!shapes.empty())
    refuse(Fault::data, other, "the parameters of the first ingredient", "also " + shapes.begin()->first, leave_out);
}

void check_pair(const Reader& first, const Reader& other, const SoupConfig& config) {
  if (other.run_uuid() != first.run_uuid() && !config.allow_cross_run) {
    refuse(Fault::data, other, "checkpoints of one run (" + first.run_uuid() + ")", other.run_uuid(),
           "leave it out, or say --allow-cross-run");
  }
  for (const auto& [key, name] : common_keys) {
    const std::string wanted = text_at(first.sections().model, key), got = text_at(other.sections().model, key);
    if (got != wanted) refuse(Fault::data, other, fmt::format("the same {} ({})", name, wanted), got, leave_out);
  }
  check_parameters(first, other);
  std::vector<std::string> names = first.attachments(), others = other.attachments();
  std::sort(names.begin(), names.end());
  std::sort(others.begin(), others.end());
  if (names != others)
    refuse(Fault::data, other, fmt::format("the files {}", fmt::join(names, ", ")),
           fmt::format("{}", fmt::join(others, ", ")), leave_out);
  for (const std::string& name : names) {
    if (first.attachment(name) != other.attachment(name))
      refuse(Fault::data, other, "the same " + name + " as in the first ingredient", "another", leave_out);
  }
}

void check_all(const std::vector<Reader>& readers, const SoupConfig& config) {
  std::set<std::string> saves;
  for (const Reader& reader : readers) {
    if (!saves.insert(reader.self_digest()).second)
      refuse(Fault::usage, reader, "each checkpoint once", "this one twice", "name it once");
    if (!reader.finite()) refuse(Fault::data, reader, "finite weights", "NaN or Inf", leave_out);
    if (!reader.sections().soup.empty() && !config.allow_soup)
      refuse(Fault::data, reader, "a checkpoint of a training run", "a soup", "leave it out, or say --allow-soup");
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

std::vector<Reader> open_ingredients(comm::Context& context, const SoupConfig& config) {
  std::vector<Reader> readers;
  std::vector<std::string> texts(config.inputs.size());
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    if (config.inputs.size() < 2) {
      throw Error{Fault::usage,
                  {.wanted = "at least two checkpoints",
                   .got = std::to_string(config.inputs.size()),
                   .where = "the command line",
                   .remedy = "name the directories, as in checkpoints/*"}};
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
      readers.emplace_back(context.files, config.inputs[i]);
      texts[i] =
          context.files.read_text(Path{config.inputs[i]} / checkpoint::manifest_name, checkpoint::manifest_limit_bytes);
    }
    check_all(readers, config);
  });
  for (std::string& text : texts) text = context.world.broadcast(std::move(text));
  comm::agree(context.world, [&] {
    if (context.is_root()) return;
    for (std::size_t i = 0; i < texts.size(); ++i) readers.emplace_back(context.files, config.inputs[i], texts[i]);
  });
  return readers;
}

std::vector<std::string> table_of(const std::vector<Reader>& ingredients) {
  std::vector<std::map<std::string, double>> metrics(ingredients.size());
  std::set<std::string> columns;
  for (std::size_t i = 0; i < ingredients.size(); ++i) {
    collect_metrics(ingredients[i].sections().metrics, "", metrics[i]);
    for (const auto& [name, value] : metrics[i]) columns.insert(name);
  }
  std::vector<std::string> lines(1, fmt::format("{:>9}", "step"));
  for (const std::string& column : columns) lines[0] += fmt::format("  {:>12}", column);
  lines[0] += "  checkpoint";
  for (std::size_t i = 0; i < ingredients.size(); ++i) {
    std::string line = fmt::format("{:>9}", ingredients[i].step());
    for (const std::string& column : columns) {
      const auto found = metrics[i].find(column);
      const std::size_t width = std::max<std::size_t>(column.size(), 12);
      line += "  " + (found == metrics[i].end() ? fmt::format("{:>{}}", "-", width)
                                                : fmt::format("{:>{}.6g}", found->second, width));
    }
    lines.push_back(line + "  " + ingredients[i].directory().string());
  }
  return lines;
}

}  // namespace argosy::soup
