#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "data/corpora.hpp"
#include "data/tokenizer.hpp"

/// Tokens of texts by a tokenizer, and how long their examples are, without writing token shards. Counted over all
/// ranks and kept by the digests of texts and tokenizer.
namespace argosy::data {

/// Of one side. Lengths are in ids, EOS included as in token shards.
struct SideTokens {
  std::int64_t tokens = 0, longest = 0;
  std::vector<std::int64_t> lengths{};  // lengths[k]: examples of 2^k to 2^(k+1) - 1 ids
  bool operator==(const SideTokens&) const = default;
};

struct TokenCount {
  std::int64_t examples = 0, empty = 0, broken = 0, unknown = 0;  // empty, broken: left out
  SideTokens source{}, target{};                                  // of a language model target alone
  bool operator==(const TokenCount&) const = default;
};

/// Counts the tokens of all corpora, before any transform. A corpus that is known in the folder `cache` is not read.
/// Throws Error{usage} for no corpus, which is standard input, and Error{data} as read_records. **Collective** over
/// `world`; the result is the same on all ranks.
[[nodiscard]] std::vector<TokenCount> count_tokens(const comm::Communicator& world, const Files& files, const Log& log,
                                                   std::span<const CountedCorpus> corpora, const Tokenizer& tokenizers,
                                                   const Path& cache);

/// The figures of a corpus in the result line.
[[nodiscard]] boost::json::object figures_of(const TokenCount& count, bool pairs);
/// Tables of the tokens and lengths of corpora. Ends with a line feed.
[[nodiscard]] std::string token_table(std::span<const std::string> names, std::span<const TokenCount> counts);

}  // namespace argosy::data
