#pragma once

#include <boost/json/object.hpp>

#include "core/bytes.hpp"
#include "interchange/hf_family.hpp"
#include "spec/model_config.hpp"

/// config.json and generation_config.json of Hugging Face models.
namespace argosy::interchange {

/// config.json of a model whose weights have this type.
[[nodiscard]] boost::json::object hf_config(const spec::Architecture& shape, Family family, DType dtype);
[[nodiscard]] boost::json::object hf_generation_config(const spec::Architecture& shape, Family family);

/// What a config.json says.
struct HfDescription {
  Family family{};
  spec::ModelConfig model;  // without what depends on the tokenizer: vocab_multiple, vocab_size, token_ids
  std::int64_t rows = 0;    // of the embeddings
  spec::TokenIds ids;       // without unk
};

/// The inverse of hf_config(). where: of the file, for messages. Throws Error{usage} for a model type or a value that
/// Argosy's models do not have, which it names; Error{data} for a missing key or one of another type.
[[nodiscard]] HfDescription description_of(const boost::json::object& config, const std::string& where);

}  // namespace argosy::interchange
