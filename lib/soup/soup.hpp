#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "comm/run_main.hpp"
#include "soup/greedy.hpp"
#include "soup/recipe.hpp"

/// The mean of checkpoints, in bounded memory and without LibTorch: the weights of all ingredients stream by in slices,
/// are summed in fp64 in the order given and divided once (Wortsman et al., arXiv:2203.05482; Vaswani et al. averaged
/// checkpoints alike). The result is a weights-only checkpoint of kind export that every reader of checkpoints takes.
/// Its bits do not depend on the rank count.
namespace argosy::soup {

struct SoupConfig {
  std::vector<std::string> inputs{};       // committed checkpoint directories
  std::string output = "soup";             // directory to commit; must not exist
  Recipe recipe{};                         // how much of each
  DType dtype = DType::f32;                // or bf16, of the result's weights
  Moments moments = Moments::drop;         // otherwise the result is a full checkpoint
  bool ema = false;                        // of the ingredients' running means, in the place of their weights
  bool allow_cross_run = false;            // ingredients of several runs
  bool allow_soup = false;                 // soups as ingredients
  bool allow_worse = false;                // commit a soup that validates worse than its best member
  std::uint64_t shard_bytes = 4ULL << 30;  // weights in one file of the result
};

/// Judges checkpoints.
struct Evaluator {
  std::string identity{};  // what losses depend on beside the weights: those of another identity are never compared
  /// Judges by the sets that decide, the same on all ranks. **Collective.**
  std::function<Judgement(const checkpoint::Reader& checkpoint)> judge{};
  /// Loss on sets that decide nothing: of the soup and of its best member, for an honest report; may be empty.
  /// **Collective.**
  std::function<double(const checkpoint::Reader& checkpoint)> report{};
  explicit operator bool() const { return judge != nullptr; }
};

/// How a soup compares with its best member.
struct Verdict {
  double loss = 0, best_member_loss = 0;
  std::string best_member{};
  std::optional<double> reported_loss{}, reported_best_member_loss{};  // on sets that decided nothing
  std::vector<std::pair<std::string, double>> losses{};  // of each checkpoint that was judged, in the order given
};

struct SoupReport {
  Path output;
  std::string recipe;
  std::size_t inputs = 0;       // members
  DType dtype = DType::f32;     // of the weights
  std::int64_t parameters = 0;  // elements
  int shards = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;  // of weights, all ranks, of the soup itself
  double seconds = 0;
  std::optional<Verdict> verdict{};  // with an evaluator
};

/// For the result line.
[[nodiscard]] boost::json::object figures(const SoupReport& report);

/// Averages config.inputs and commits config.output; ranks share the 4 MiB blocks of the output. Every byte used is
/// verified before the commit; a bad ingredient leaves nothing behind. With an evaluator, members and soup are judged
/// first, and a soup that is worse than its best member is not committed unless config.allow_worse; the recipe greedy
/// needs one. **Collective.** Throws Error{usage} for a recipe that makes no sense or an output that exists,
/// Error{data} for ingredients that do not fit together, Error{numeric} for a worse soup, Error{corrupt}, Error{io}.
SoupReport make_soup(comm::Context& context, const SoupConfig& config, const Evaluator& evaluate = {});

}  // namespace argosy::soup
