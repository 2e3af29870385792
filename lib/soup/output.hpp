#pragma once

#include <boost/json/object.hpp>
#include <cstdint>

#include "soup/inputs.hpp"

/// Writes a mean as a committed checkpoint. Each rank writes a share of its 4 MiB blocks, and all ranks agree before
/// the commit. A soup that fails leaves no files.
namespace argosy::soup {

struct Output {
  Path target{};                           // directory to commit; must not exist
  std::uint64_t shard_bytes = 4ULL << 30;  // weights in one file
  DType dtype = DType::f32;                // or bf16, of the weights
  Moments moments = Moments::drop;         // otherwise a full checkpoint is written
  boost::json::object section{};           // of the manifest's `soup`, without inputs and weights
};

/// Computes, writes and commits the mean. Leaves recipe, seconds and comparison of the result empty.
/// **Collective.** Throws Error{corrupt, data, io, numeric}.
SoupResult write_mean(const comm::Context& context, const Mean& mean, const Output& output);

/// Evaluates the members and their mean (the recipe greedy evaluates further means to make its choice), and writes the
/// mean unless it is worse than its best member. Each loss is stored at once in a JSON file next to the output
/// (`.<name>.journal`), so that the same call resumes there after an interruption. An entry is valid only for the same
/// weights, evaluator and number of ranks. **Collective.** Throws Error{numeric} for a worse soup, and as write_mean.
SoupResult write_validated(comm::Context& context, const SoupConfig& config, const Inputs& inputs,
                           const Evaluator& evaluator, Output output);

}  // namespace argosy::soup
