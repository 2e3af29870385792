#pragma once

#include <cstdint>

#include "comm/comm.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "data/data_config.hpp"
#include "data/tokenizer.hpp"

namespace argosy::data {

struct VerifyReport {
  std::int64_t shards = 0, examples = 0, bytes = 0;
};

/// Reads the folder of token shards whole: index, headers, every block against its digest, lengths, offsets, documents
/// and ids against each other and the vocabulary. Ranks share the shards. Throws as TokenShards::open does, and
/// Error{corrupt} naming a file that does not fit. **Collective** over `world`.
[[nodiscard]] VerifyReport verify_shards(const comm::Communicator& world, const Files& files, const Log& log,
                                         const DataConfig& config, const Tokenizer& tokenizer);

}  // namespace argosy::data
