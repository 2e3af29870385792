#include "data/tokenizer_training.hpp"

#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "core/error.hpp"
#include "core/random.hpp"
#include "data/line_reader.hpp"

namespace argosy::data {
namespace {

constexpr std::uint64_t sample_seed = 20240901;  // fixed: the tokenizer does not depend on the run's seed
constexpr int training_threads = 4;              // fixed: sums over threads decide bits of the scores

/// Hands lines that somebody else owns to the library.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::span<const std::string> lines) : lines_(lines) {}
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> lines_;
  std::size_t at_ = 0;
};

}  // namespace

Digest digest_of_training(const TokenizerTraining& training, std::span<const CountedFile> texts,
                          spec::TokenLayout layout, InvalidUtf8 policy) {
  // Pegasus has Marian's ids.
  if (layout == spec::TokenLayout::pegasus) layout = spec::TokenLayout::marian;
  Hasher hasher;
  hasher.update(fmt::format("tokenizer 1 {} {} {} {} {} {}", static_cast<int>(training.type), training.vocab_size,
                            training.character_coverage, training.sample_lines, static_cast<int>(layout),
                            static_cast<int>(policy)));
  for (const CountedFile& text : texts) hasher.update(std::as_bytes(std::span{text.record.digest.bytes}));
  return hasher.digest();
}

std::vector<std::string> sample_lines(const Files& files, std::span<const CountedFile> texts, std::int64_t count,
                                      InvalidUtf8 policy) {
  std::uint64_t total = 0;
  for (const CountedFile& text : texts) total += static_cast<std::uint64_t>(text.record.figures.lines);
  std::vector<std::uint64_t> wanted(std::min(total, static_cast<std::uint64_t>(count)));
  const Permutation order{std::max<std::uint64_t>(total, 1), sample_seed, 0};
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = order(i);
  std::sort(wanted.begin(), wanted.end());

  std::vector<std::string> sample;
  sample.reserve(wanted.size());
  auto next = wanted.begin();
  std::uint64_t at = 0;
  for (const CountedFile& text : texts) {
    LineReader reader{files.open(text.path), 0, 0, policy};
    for (std::string line; reader.next(line); ++at) {
      if (next == wanted.end() || *next != at) continue;
      ++next;
      if (!line.empty()) sample.push_back(line);
    }
  }
  return sample;
}

std::string train_tokenizer(const TokenizerTraining& training, std::span<const std::string> lines,
                            spec::TokenLayout layout) {
  const spec::Vocabulary ids = spec::vocabulary_of({layout}, training.vocab_size);
  const bool pad_is_piece = layout == spec::TokenLayout::t5;
  const std::unordered_map<std::string, std::string> settings{
      {"model_type", training.type == TokenizerType::bpe ? "bpe" : "unigram"},
      {"vocab_size", fmt::format("{}", training.vocab_size)},
      {"character_coverage", fmt::format("{}", training.character_coverage)},
      {"num_threads", fmt::format("{}", training_threads)},
      {"max_sentence_length", "65536"},
      {"unk_id", fmt::format("{}", ids.unk)},
      {"eos_id", fmt::format("{}", ids.eos)},
      {"bos_id", fmt::format("{}", ids.bos.value_or(-1))},
      {"pad_id", fmt::format("{}", pad_is_piece ? *ids.pad : -1)},
      {"minloglevel", "2"},
  };
  std::string model;
  Lines iterator{lines};
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  if (!status.ok()) {
    const std::string text = status.ToString();
    const bool too_small =
        text.find("ocabulary size") != std::string::npos || text.find("vocab_size") != std::string::npos;
    throw Error{too_small ? Fault::config : Fault::data,
                {.wanted = fmt::format("a tokenizer of {} pieces", training.vocab_size),
                 .got = fmt::format("none from {} lines (SentencePiece: {})", lines.size(), text),
                 .where = "data.tokenizer_training",
                 .remedy = too_small ? "lower vocab_size, or give more text" : "check the corpora"}};
  }
  return model;
}

}  // namespace argosy::data
