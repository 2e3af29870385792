#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "comm/run_main.hpp"
#include "soup/recipe.hpp"

/// The mean of checkpoints, in bounded memory and without LibTorch (model soups: Wortsman et al., arXiv:2203.05482;
/// averaged checkpoints: Vaswani et al., arXiv:1706.03762). The weights of all inputs are read slice by slice, summed
/// in fp64 in the order given and divided once. The soup is a checkpoint of kind export. Its bits do not depend on the
/// number of ranks.
namespace argosy::soup {

struct SoupConfig {
  std::vector<std::string> inputs{};       // committed checkpoint directories
  std::string output = "soup";             // directory to commit; must not exist
  Recipe recipe{};                         // which inputs, with which weights
  DType dtype = DType::f32;                // or bf16, of the soup's weights
  Moments moments = Moments::drop;         // otherwise the soup is a full checkpoint
  bool ema = false;                        // average the inputs' running means in place of their weights
  bool components = false;                 // inputs may have different tasks
  bool allow_cross_run = false;            // inputs of several runs
  bool allow_soup = false;                 // soups as inputs
  bool allow_worse = false;                // commit a soup that validates worse than its best member
  std::uint64_t shard_bytes = 4ULL << 30;  // weights in one file of the soup
};

/// Measures the validation loss of checkpoints. The library stays free of LibTorch: its caller supplies this.
struct Evaluator {
  std::string
      identity{};  // what losses depend on besides the weights; losses of different identities are never compared
  /// On the sets that decide; the same on all ranks. **Collective.**
  std::function<ValidationLoss(const checkpoint::Reader& checkpoint)> evaluate{};
  /// On sets that decide nothing, for an unbiased report on the soup and its best member; may be empty. **Collective.**
  std::function<double(const checkpoint::Reader& checkpoint)> report{};
  explicit operator bool() const { return evaluate != nullptr; }
};

/// How a soup compares with its best member.
struct Comparison {
  double loss = 0, best_member_loss = 0;
  std::string best_member{};
  std::optional<double> reported_loss{}, reported_best_member_loss{};  // on sets that decide nothing
  std::vector<std::pair<std::string, double>> losses{};  // of each evaluated checkpoint, in the order given
};

struct SoupResult {
  Path output;
  std::string recipe{};
  std::size_t inputs = 0;       // members
  DType dtype = DType::f32;     // of the weights
  std::int64_t parameters = 0;  // elements
  int shards = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;  // of weights, all ranks, without temporary soups
  double seconds = 0;
  std::optional<Comparison> comparison{};  // with an evaluator
};

/// For the result line.
[[nodiscard]] boost::json::object figures(const SoupResult& result);

/// Averages config.inputs and commits config.output. Each rank writes a share of the output's 4 MiB blocks. Every byte
/// read is verified before the commit; after an error no files remain. With an evaluator, the members and the soup are
/// evaluated first, and a soup worse than its best member is committed only with config.allow_worse. The recipe greedy
/// requires an evaluator. **Collective.** Throws Error{usage} for an invalid recipe or an output that exists,
/// Error{data} for inputs that do not match, Error{numeric} for a worse soup, Error{corrupt}, Error{io}.
SoupResult make_soup(comm::Context& context, const SoupConfig& config, const Evaluator& evaluator = {});

/// What `soup --check` found.
struct CheckedCheckpoint {
  std::string path{};
  std::string wrong{};      // empty: no flaw
  std::int64_t step = -1;   // -1: unknown, as are the rest
  std::string kind{};       // temp, export, soup
  std::size_t shards = 0;   // ranks that wrote it
  std::uint64_t bytes = 0;  // verified
};

/// Verifies every byte of checkpoints except model.h5: manifests, sizes, root digests, every block of every dataset,
/// and copied files. Also checks that all values are finite. Each rank verifies a share of the blocks. Prints a line
/// for each checkpoint and continues after a damaged one. **Collective.** Throws Error{comm}, and Error{data} for a
/// folder that was never committed.
[[nodiscard]] std::vector<CheckedCheckpoint> check_checkpoints(comm::Context& context,
                                                               const std::vector<std::string>& paths);

/// For the result line: {checkpoints, damaged, bytes, gb_per_s, verdicts[{path, step, verdict}]}.
[[nodiscard]] boost::json::object figures(const std::vector<CheckedCheckpoint>& checked, double seconds);

}  // namespace argosy::soup
