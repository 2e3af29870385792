#pragma once

#include <boost/json/object.hpp>
#include <cstdint>

#include "soup/ingredients.hpp"

/// From ingredients to a committed directory: ranks share the 4 MiB blocks of the result, the vote of all precedes the
/// commit, and nothing of a failed soup stays.
namespace argosy::soup {

struct Order {
  Path target{};                           // directory to commit; must not exist
  std::uint64_t shard_bytes = 4ULL << 30;  // weights in one file
  DType dtype = DType::f32;                // or bf16, of the weights
  Moments moments = Moments::drop;         // otherwise the result is a full checkpoint
  boost::json::object section{};           // what the manifest's `soup` says beside inputs and weights
};

struct Cooked {
  std::size_t members = 0;
  std::int64_t parameters = 0;  // elements
  int shards = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;  // of weights, all ranks
};

/// Writes and commits the mixture. **Collective.** Throws Error{corrupt, data, io, numeric}.
Cooked cook(const comm::Context& context, const Ingredients& ingredients, const Order& order);

}  // namespace argosy::soup
