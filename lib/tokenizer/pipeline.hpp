#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "tokenizer/sampling.hpp"

/// Text ↔ ids through a tokenizer.json of Hugging Face: the ids and the texts of their library `tokenizers`. FORMAT.md
/// says what is read. Immutable after load; all functions may run on many threads at once.
namespace argosy::tokenizer {

class Pipeline {
 public:
  /// Throws Error{data} if `json` is no tokenizer.json, or one with a component that Argosy does not read; `name`
  /// stands in the message.
  static Pipeline load(std::string_view json, std::string_view name);
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;
  ~Pipeline();

  /// As `encode(text, add_special_tokens=False)` of the library; a byte that is no UTF-8 counts as U+FFFD. Throws
  /// Error{data} if a regular expression of the file takes seconds.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// The same, with each word that goes to the model cut by chance.
  [[nodiscard]] std::vector<std::int32_t> sample(std::string_view text, const Sampling& how,
                                                 RandomStream& random) const;
  /// The number of pieces that the text of a piece is cut into by chance.
  [[nodiscard]] std::int64_t sample_size(std::int32_t id, const Sampling& how, RandomStream& random) const;
  /// Whether the model is BPE; else it is a unigram model.
  [[nodiscard]] bool is_bpe() const;
  /// As `decode(ids, skip_special_tokens=True)` of the library; ids that are none leave nothing.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

  /// Ids are [0, size()).
  [[nodiscard]] std::int32_t size() const noexcept;
  [[nodiscard]] const std::string& piece(std::int32_t id) const;
  /// Unigram: log-probability. BPE: the negative rank of the first merge that makes the piece. 0: a piece that is
  /// added.
  [[nodiscard]] float score(std::int32_t id) const;
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view piece) const;
  /// Special tokens are left out of decoded text.
  [[nodiscard]] bool is_special(std::int32_t id) const;
  /// The piece for what the model does not know.
  [[nodiscard]] std::optional<std::int32_t> unknown() const;

  /// What the library puts before and after one text if it is asked to add special tokens.
  [[nodiscard]] const std::vector<std::int32_t>& prefix() const noexcept;
  [[nodiscard]] const std::vector<std::int32_t>& suffix() const noexcept;

 private:
  struct Stages;
  template <class Cut>
  std::vector<std::int32_t> encode(std::string_view text, Cut&& cut) const;
  explicit Pipeline(std::unique_ptr<const Stages> stages);
  std::unique_ptr<const Stages> stages_;
};

}  // namespace argosy::tokenizer
