#include "plan/init_from.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "config/describe.hpp"
#include "core/error.hpp"

namespace argosy::plan {
namespace {

bool is_part(std::string_view component, std::string_view part) {
  return component == part || component.starts_with(std::string(part) + ".");
}

/// Embeddings or output of a language.
bool is_table(std::string_view component) {
  constexpr std::array tables{"embeddings.", "source_embeddings.", "target_embeddings.", "output."};
  return std::ranges::any_of(tables, [&](const char* table) { return component.starts_with(table); });
}

}  // namespace

bool InitSource::covers(const spec::Parameter& parameter) const {
  const bool is_position = parameter.role == spec::Role::position_table || parameter.role == spec::Role::relative_bias;
  return !(is_position && reinit_positions) && std::ranges::any_of(components, [&](const std::string& component) {
    return spec::is_of(parameter, component);
  });
}

bool InitSource::has(std::string_view part) const {
  return std::ranges::any_of(components, [&](const std::string& component) {
    return is_part(component, part) || (part == "embeddings" && is_table(component));
  });
}

std::span<const config::KeyText> key_texts(const InitSource&) {
  static constexpr std::array<config::KeyText, 4> texts{{
      {"from",
       "folder of a checkpoint, of a soup, or of a Hugging Face model; with lora also of adapters that peft wrote"},
      {"components",
       "what is taken from it: embeddings (with the output matrix and its bias), encoder, decoder, or components of a "
       "model of several tasks: \"encoder.fr\", \"embeddings.fr\", \"encoder.all\" (what all tasks share of a side); "
       "default: all"},
      {"allow_new", "true: parameters that it does not have begin with random values; false: they are an error"},
      {"reinit_positions",
       "true: positions may be of another kind than there, and learned ones begin with random values"},
  }};
  return texts;
}

void validate(const InitSource& source, config::Problems& problems) {
  problems.require(!source.from.empty(), "/from", "the folder of a model", "nothing");
  constexpr std::string_view wanted = "at least one of embeddings, encoder, decoder, or a component such as encoder.fr";
  problems.require(!source.components.empty(), "/components", wanted, "none");
  for (const std::string& component : source.components)
    problems.require(component == "embeddings" || is_part(component, "encoder") || is_part(component, "decoder") ||
                         is_table(component),
                     "/components", wanted, component);
}

InitFrom InitFrom::parse(std::string_view text) {
  if (!text.starts_with('{') && !text.starts_with('[')) {
    if (text.empty()) throw Error{Fault::config, {.wanted = "the folder of a model", .got = "an empty text"}};
    return {{InitSource{.from = std::string{text}}}};
  }
  boost::system::error_code bad;
  boost::json::value value = boost::json::parse(text, bad);
  if (!bad && value.is_object()) value = boost::json::array{std::move(value)};
  if (bad || !value.is_array() || value.get_array().empty())
    throw Error{Fault::config,
                {.wanted = R"(a folder, {"from": DIR, …} or a list of these objects)", .got = std::string{text}}};
  InitFrom result;
  for (const boost::json::value& item : value.get_array())
    result.sources.push_back(
        config::from_document<InitSource>(config::Document::parse(boost::json::serialize(item), "init_from")));
  return result;
}

std::string InitFrom::text() const {
  const InitSource& first = sources.front();
  if (sources.size() == 1 && !first.allow_new && !first.reinit_positions && first.components == InitSource{}.components)
    return first.from;
  boost::json::array list;
  for (const InitSource& source : sources) list.push_back(config::to_json(source));
  return config::text_of(list, false);
}

boost::json::value InitFrom::schema() {
  boost::json::value source = config::schema_of<InitSource>();
  source.as_object().erase("$schema");
  return {{"anyOf",
           boost::json::array{{{"type", "string"}}, source, {{"type", "array"}, {"items", source}, {"minItems", 1}}}}};
}

bool has_new_embeddings(const Files& files, const InitFrom& from) {
  bool has_any = false;
  for (const InitSource& source : from.sources) {
    if (!source.has("embeddings")) continue;
    has_any = true;
    const Path map = Path(source.from) / "vocab_map.json";
    if (!files.exists(map)) continue;
    boost::system::error_code bad;
    const boost::json::value value = boost::json::parse(files.read_text(map), bad);
    const boost::json::value* const added = bad ? nullptr : value.find_pointer("/added", bad);
    if (added == nullptr || !added->is_array())
      throw_error(Fault::corrupt, map.string(), "a JSON object with a list `added`", "another text",
                  "write the model again with export, or set lora.train_embeddings");
    if (!added->get_array().empty()) return true;
  }
  return !has_any;
}

}  // namespace argosy::plan
