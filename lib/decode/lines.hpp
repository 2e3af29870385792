#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decode/translate.hpp"

/// Lines that the ranks share out by length. For .cpp files of this module.
namespace argosy::decode {

/// Hands each line of `order`, longest first, to one rank, and gives all results to all ranks: out[line]. work: the
/// results for the lines of this rank, in their order. Lines that are not in `order` get an empty result.
/// **Collective**; when one rank's work throws, all ranks throw.
[[nodiscard]] std::vector<Translation> share_out(
    const comm::Communicator& world, std::size_t lines, const std::vector<std::size_t>& order,
    const std::function<std::vector<Translation>(const std::vector<std::size_t>& mine)>& work);

/// The decoder layer, from 0, whose attention gives the alignments that `wanted` asks for: 0 is the last layer. nullopt
/// if none are wanted. Throws Error{usage} for a layer that the model lacks, and for a decoder-only model.
[[nodiscard]] std::optional<std::int64_t> alignment_layer(const spec::Architecture& shape,
                                                          std::optional<std::int64_t> wanted);

/// "0-0 2-1": pairs of a position in the source and one in the target, of target positions [first, end), counted from
/// `first`.
[[nodiscard]] std::string alignment_text(const std::vector<std::int64_t>& aligned, std::size_t first, std::size_t end);

}  // namespace argosy::decode
