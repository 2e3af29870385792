#include "tokenizer/pipeline.hpp"

#include <boost/json.hpp>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/decoder.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/wrapping.hpp"

namespace argosy::tokenizer {
namespace {

boost::json::value parsed(std::string_view json, std::string_view name) {
  boost::system::error_code error;
  boost::json::value value =
      boost::json::parse(json, error, boost::json::make_shared_resource<boost::json::monotonic_resource>());
  if (error || !value.is_object())
    throw_error(Fault::data, std::string{name}, "a tokenizer.json of Hugging Face",
                error ? error.message() : "no JSON object", "get the file again");
  return value;
}

template <class Read>
auto optional_part(const JsonNode& root, std::string_view key, Read&& read) -> decltype(read(root)) {
  const auto node = root.find(key);
  return node ? read(*node) : decltype(read(root)){};
}

}  // namespace

/// In the order in which a text passes them.
struct Pipeline::Stages {
  Stages(const JsonNode& root, std::string_view json)
      : normalizer(optional_part(root, "normalizer", normalizer_of)),
        pre_tokenizer(optional_part(root, "pre_tokenizer", pre_tokenizer_of)),
        model(model_of(root.at("model"), json)),
        added(root.find("added_tokens"), *model, normalizer.get()),
        decoder(optional_part(root, "decoder", decoder_of)),
        around(optional_part(root, "post_processor",
                             [&](const JsonNode& node) { return wrapping_of(node, added.size()); })) {}

  std::unique_ptr<Normalizer> normalizer;       // may be none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be none
  std::unique_ptr<Model> model;
  AddedTokens added;
  std::unique_ptr<Decoder> decoder;  // may be none
  Wrapping around;
};

Pipeline::Pipeline(std::unique_ptr<const Stages> stages) : stages_(std::move(stages)) {}
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;
Pipeline::~Pipeline() = default;

Pipeline Pipeline::load(std::string_view json, std::string_view name) {
  const boost::json::value value = parsed(json, name);
  return Pipeline(std::make_unique<const Stages>(JsonNode(value, name), json));
}

template <class Cut>
std::vector<std::int32_t> Pipeline::encode(std::string_view text, Cut&& cut) const {
  std::string repaired;
  if (first_invalid_utf8(text)) text = repaired = replace_invalid_utf8(text);
  Parts parts = stages_->added.split(text, stages_->normalizer.get());
  if (stages_->pre_tokenizer) stages_->pre_tokenizer->apply(parts);
  std::vector<std::int32_t> ids;
  for (const Part& part : parts.list) {
    if (part.id >= 0)
      ids.push_back(part.id);
    else
      cut(parts.view(part), ids);
  }
  return ids;
}

std::vector<std::int32_t> Pipeline::encode(std::string_view text) const {
  return encode(text,
                [&](std::string_view word, std::vector<std::int32_t>& ids) { stages_->model->encode(word, ids); });
}

std::vector<std::int32_t> Pipeline::sample(std::string_view text, const Sampling& how, RandomStream& random) const {
  return encode(text, [&](std::string_view word, std::vector<std::int32_t>& ids) {
    stages_->model->sample(word, how, random, ids);
  });
}

std::int64_t Pipeline::sample_size(std::int32_t id, const Sampling& how, RandomStream& random) const {
  if (stages_->added.find(id) != nullptr) return 1;
  std::vector<std::int32_t> ids;
  stages_->model->sample(stages_->model->piece(id), how, random, ids);
  return std::ssize(ids);
}

bool Pipeline::is_bpe() const { return stages_->model->is_bpe(); }

std::string Pipeline::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size()) continue;
    const std::string& seen =
        stages_->added.find(id) != nullptr ? stages_->added.decoded(id) : stages_->model->piece(id);
    if (!stages_->added.is_left_out(seen)) pieces.push_back(seen);
  }
  if (stages_->decoder) stages_->decoder->apply(pieces);
  std::string text;
  for (const std::string& piece : pieces) {
    if (!stages_->decoder && &piece != &pieces.front()) text += ' ';
    text += piece;
  }
  return text;
}

std::int32_t Pipeline::size() const noexcept { return stages_->added.size(); }

const std::string& Pipeline::piece(std::int32_t id) const {
  ARGOSY_CHECK(id >= 0 && id < size(), "id {} of {}", id, size());
  const AddedTokens::Token* const token = stages_->added.find(id);
  return token != nullptr ? token->content : stages_->model->piece(id);
}

float Pipeline::score(std::int32_t id) const {
  ARGOSY_CHECK(id >= 0 && id < size(), "id {} of {}", id, size());
  return id < stages_->model->size() ? stages_->model->score(id) : 0;
}

std::optional<std::int32_t> Pipeline::id_of(std::string_view piece) const {
  const auto added = stages_->added.id_of(piece);
  return added ? added : stages_->model->id_of(piece);
}

bool Pipeline::is_special(std::int32_t id) const {
  const AddedTokens::Token* const token = stages_->added.find(id);
  return token != nullptr && token->special;
}

std::optional<std::int32_t> Pipeline::unknown() const { return stages_->model->unknown(); }
const std::vector<std::int32_t>& Pipeline::prefix() const noexcept { return stages_->around.before; }
const std::vector<std::int32_t>& Pipeline::suffix() const noexcept { return stages_->around.after; }

}  // namespace argosy::tokenizer
