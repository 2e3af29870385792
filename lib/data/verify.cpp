#include "data/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "data/shard_index.hpp"
#include "data/token_shards.hpp"

namespace argosy::data {
namespace {

void verify(const TokenShard& shard, const Path& path, const spec::Vocabulary& vocabulary) {
  shard.verify();
  shard.check();
  if (shard.is_text()) return;
  Example example;
  for (std::uint64_t i = 0; i < shard.size(); ++i) {
    shard.read(i, example);
    for (const std::vector<std::int32_t>* ids : {&example.source, &example.target}) {
      const auto dead = std::ranges::find_if(
          *ids, [&](std::int32_t id) { return id < 0 || id >= vocabulary.rows || vocabulary.is_dead(id); });
      if (dead != ids->end())
        throw_error(Fault::corrupt, path.string(), fmt::format("token ids below {}", vocabulary.pieces),
                    fmt::format("{} in example {}", *dead, i), "remove the file and run preprocess");
    }
  }
}

}  // namespace

VerifyReport verify_shards(const comm::Communicator& world, const Files& files, const Log& log,
                           const DataConfig& config, const Tokenizer& tokenizer) {
  const Path folder = config.shards;
  VerifyReport mine;
  comm::agree(world, [&] {
    static_cast<void>(
        TokenShards::open(files, config, tokenizer, Part::all));  // the index, and what it says of headers
    std::vector<std::string> names;
    for (const ShardIndex::Corpus& corpus : read_shard_index(files, folder).corpora)
      for (const ShardIndex::Shard& shard : corpus.shards) names.push_back(shard.file);
    const auto ranks = static_cast<std::size_t>(world.size());
    for (std::size_t s = static_cast<std::size_t>(world.rank()); s < names.size(); s += ranks) {
      const TokenShard shard = TokenShard::open(files, folder / names[s]);
      verify(shard, folder / names[s], tokenizer.vocabulary());
      ++mine.shards;
      mine.examples += static_cast<std::int64_t>(shard.size());
      mine.bytes += static_cast<std::int64_t>(shard.size_bytes());
      log.progress("verify", static_cast<double>(std::min(s + ranks, names.size())), static_cast<double>(names.size()),
                   "shards");
    }
  });
  std::array<std::int64_t, 3> sums{mine.shards, mine.examples, mine.bytes};
  world.all_reduce(sums);
  return {.shards = sums[0], .examples = sums[1], .bytes = sums[2]};
}

}  // namespace argosy::data
