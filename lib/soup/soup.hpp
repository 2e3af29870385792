#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/run_main.hpp"

/// The mean of checkpoints, in bounded memory and without LibTorch: the weights of all ingredients stream by in slices,
/// are summed in fp64 in the order given and divided once (Wortsman et al., arXiv:2203.05482; Vaswani et al. averaged
/// checkpoints alike). The result is a weights-only checkpoint of kind export that every reader of checkpoints takes.
/// Its bits do not depend on the rank count.
namespace argosy::soup {

struct SoupConfig {
  std::vector<std::string> inputs;         // committed checkpoint directories
  std::string output = "soup";             // directory to commit; must not exist
  bool allow_cross_run = false;            // ingredients of several runs
  bool allow_soup = false;                 // soups as ingredients
  std::uint64_t shard_bytes = 4ULL << 30;  // weights in one file of the result
};

struct SoupReport {
  Path output;
  std::size_t inputs = 0;
  std::int64_t parameters = 0;  // elements
  int shards = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;  // of weights, all ranks
  double seconds = 0;
};

/// For the result line.
[[nodiscard]] boost::json::object figures(const SoupReport& report);

/// Averages config.inputs and commits config.output; ranks share the 4 MiB blocks of the output. Every byte used is
/// verified before the commit; a bad ingredient leaves nothing behind. **Collective.** Throws Error{usage} for a recipe
/// that makes no sense or an output that exists, Error{data} for ingredients that do not fit together, Error{corrupt},
/// Error{io}.
SoupReport make_soup(comm::Context& context, const SoupConfig& config);

}  // namespace argosy::soup
