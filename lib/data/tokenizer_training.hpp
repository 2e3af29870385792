#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/corpora.hpp"
#include "data/data_config.hpp"
#include "data/tokenizer.hpp"

/// Trains a SentencePiece model on a deterministic sample of lines: the same texts and settings give the same bytes.
/// Runs on one rank; the caller broadcasts the model.
namespace argosy::data {

/// The sides of a corpus that a tokenizer is trained on.
struct TrainingText {
  const CountedCorpus* corpus = nullptr;  // borrowed
  bool source = true, target = true;
};
/// All texts of corpora, which it borrows; of a language, those that are in it.
[[nodiscard]] std::vector<TrainingText> training_texts(std::span<const CountedCorpus> corpora);
[[nodiscard]] std::vector<TrainingText> training_texts(std::span<const CountedCorpus> corpora,
                                                       const std::string& language);

/// What decides a tokenizer: texts (by content), settings, ids of the layout. Names it in caches. symbols: symbols_of()
/// the configuration.
[[nodiscard]] Digest digest_of_training(const TokenizerTraining& training, std::span<const std::string> symbols,
                                        std::span<const TrainingText> texts, spec::TokenLayout layout);

/// `count` lines of all texts together (each line at most once; all of them when there are fewer), in text order. A
/// record of tsv or jsonl gives the lines of its texts.
[[nodiscard]] std::vector<std::string> sample_lines(const Files& files, std::span<const TrainingText> texts,
                                                    std::int64_t count);

/// Bytes of the model trained on `lines`. `symbols` are whole pieces of it (SentencePiece: user-defined). What
/// `training` leaves open is decided as for pairs. Throws Error{config} when the text is too small for the vocabulary
/// (with the largest possible size) or the vocabulary too small for its characters, Error{data} when nothing can be
/// trained. SentencePiece (arXiv:1808.06226), unigram (arXiv:1804.10959) or BPE (arXiv:1508.07909).
[[nodiscard]] std::string train_tokenizer(const TokenizerTraining& training, std::span<const std::string> lines,
                                          spec::TokenLayout layout, std::span<const std::string> symbols = {});

}  // namespace argosy::data
