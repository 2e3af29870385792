#include "tokenizer/wrapping.hpp"

#include "core/error.hpp"

namespace argosy::tokenizer {
namespace {

std::int32_t id_of(const JsonNode& node, std::int32_t size) { return narrow<std::int32_t>(node.whole(size)); }

/// The template of one text: pieces, one of which is the text.
void add_template(const JsonNode& node, std::int32_t size, Wrapping& around) {
  Wrapping here;
  std::vector<std::int32_t>* side = &here.before;
  for (const JsonNode& piece : node.at("single").elements()) {
    if (const auto sequence = piece.find("Sequence")) {
      const std::string name = sequence->at("id").text();
      if (name != "A" || side != &here.before) sequence->refuse("the text A once", name);
      side = &here.after;
      continue;
    }
    const JsonNode token = piece.at("SpecialToken");
    for (const JsonNode& id : node.at("special_tokens").at(token.at("id").text()).at("ids").elements())
      side->push_back(id_of(id, size));
  }
  if (side != &here.after) node.at("single").refuse("the text A", "a template without it");
  around.before.insert(around.before.begin(), here.before.begin(), here.before.end());
  around.after.insert(around.after.end(), here.after.begin(), here.after.end());
}

void add(const JsonNode& node, std::int32_t size, Wrapping& around) {
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const JsonNode& step : node.at("processors").elements()) add(step, size, around);
  } else if (type == "TemplateProcessing") {
    add_template(node, size, around);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto id = [&](const char* key) {  // ["<s>", 0]
      const auto both = node.at(key).elements();
      if (both.size() != 2) node.at(key).refuse("a piece and its id", fmt::format("{} values", both.size()));
      return id_of(both[1], size);
    };
    around.before.insert(around.before.begin(), id("cls"));
    around.after.push_back(id("sep"));
  } else if (type != "ByteLevel") {  // which changes offsets alone
    node.refuse_type("post-processor", "Sequence, TemplateProcessing, BertProcessing, RobertaProcessing and ByteLevel");
  }
}

}  // namespace

Wrapping wrapping_of(const JsonNode& node, std::int32_t size) {
  Wrapping around;
  add(node, size, around);
  return around;
}

}  // namespace argosy::tokenizer
