#pragma once

#include <cstdint>
#include <vector>

#include "interchange/tensor_file.hpp"

/// safetensors files (FORMAT.md): a JSON header with names, types, shapes and places, then the tensors.
namespace argosy::interchange {

/// Writes `folder`/model.safetensors. If the tensors have more than `max_shard_bytes`, they go in their order into
/// model-00001-of-0000N.safetensors …, which model.safetensors.index.json lists; a larger tensor has a file of its own.
/// Returns the size of all files of weights. The bytes do not depend on the number of ranks.
/// **Collective** over `world`. Throws Error{io}, and what `bytes` of a tensor throws.
std::uint64_t write_safetensors(const comm::Communicator& world, const Files& files, const Path& folder,
                                const std::vector<Tensor>& tensors, std::uint64_t max_shard_bytes);

}  // namespace argosy::interchange
