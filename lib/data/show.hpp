#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/file.hpp"
#include "data/corpora.hpp"
#include "data/data_config.hpp"
#include "data/tokenizer.hpp"

/// For people who write a configuration: what becomes of the first examples of each corpus on their way to ids.
namespace argosy::data {

/// "pieces … | ids … | text …" of the first 200 ids, and how many more there are.
[[nodiscard]] std::string text_of_ids(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

/// A text with the first `count` examples of each corpus, as they are read and after each transform that changes them:
/// pieces, ids and text of the beginnings of both sides, by draws of the seed where a transform draws. Of examples that
/// are left out it says by which transform and why. corpora: count_corpora() of the configuration. Reads only the
/// beginnings of the texts, and writes nothing. Throws as read_records(), and Error{config} for transforms that do not
/// fit the tokenizer.
[[nodiscard]] std::string show_examples(const Files& files, const DataConfig& config,
                                        std::span<const CountedCorpus> corpora, const Tokenizer& tokenizer,
                                        std::int64_t count, std::uint64_t seed);

}  // namespace argosy::data
