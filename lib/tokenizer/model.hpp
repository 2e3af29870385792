#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "tokenizer/json_node.hpp"
#include "tokenizer/sampling.hpp"

/// "model" of tokenizer.json: cuts a word into pieces. Ids are [0, size()). Immutable, for any number of threads.
namespace argosy::tokenizer {

class Model {
 public:
  virtual ~Model() = default;
  /// Adds the ids of a word, which is not empty.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  /// The same, cut by chance.
  virtual void sample(std::string_view word, const Sampling& how, RandomStream& random,
                      std::vector<std::int32_t>& ids) const = 0;
  [[nodiscard]] virtual bool is_bpe() const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;
  [[nodiscard]] virtual const std::string& piece(std::int32_t id) const = 0;
  /// Unigram: log-probability. BPE: the negative rank of the first merge that makes the piece, 0 where none does.
  [[nodiscard]] virtual float score(std::int32_t id) const = 0;
  [[nodiscard]] virtual std::optional<std::int32_t> id_of(std::string_view piece) const = 0;
  [[nodiscard]] virtual std::optional<std::int32_t> unknown() const = 0;
};

/// Throws Error{data} on what Argosy does not read, on ids that are not 0, 1, 2, … and on merges of unknown pieces.
/// json: the whole text, of which `node` is a part.
[[nodiscard]] std::unique_ptr<Model> model_of(const JsonNode& node, std::string_view json);
[[nodiscard]] std::unique_ptr<Model> bpe_of(const JsonNode& node);
[[nodiscard]] std::unique_ptr<Model> unigram_of(const JsonNode& node, std::string_view json);

/// "<0x0A>", the piece that stands for a byte.
[[nodiscard]] std::string byte_piece(unsigned char byte);

}  // namespace argosy::tokenizer
