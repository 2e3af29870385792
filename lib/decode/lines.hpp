#pragma once

#include <functional>
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

}  // namespace argosy::decode
