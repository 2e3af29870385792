#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "checkpoint/manifest.hpp"

/// Writes a checkpoint that is computed piece by piece: a soup, or a model of another program. Each rank writes a share
/// of the 4 MiB blocks. The bytes do not depend on the number of ranks.
namespace argosy::checkpoint {

/// Where the values come from.
struct Pieces {
  /// Elements [begin, begin + count) of the flat space of a unit, in the type that the manifest gives, for a tensor of
  /// that unit; gaps are zero. count <= slice_elements. The bytes must stay valid until the next call.
  std::function<Bytes(std::size_t unit, std::size_t tensor, std::int64_t begin, std::int64_t count)> slice;
  std::int64_t slice_elements = 1 << 16;
  /// Called on each rank after its last slice; throws when a slice turns out to be damaged.
  std::function<void()> finish = [] {};
  std::string_view title{};  // of the line that shows progress
  /// Called on rank 0 with the complete folder, before it gets its name; throws when it must not.
  std::function<void(const Path& folder)> last_check = [](const Path&) {};
};

/// Computes, writes and commits `target`. All units have the same tensors, one element each. The digests of `manifest`
/// are filled in. After an error no files remain. Returns the bytes of all tensors. **Collective.** Throws Error{usage}
/// when the target exists, Error{io}, and what `pieces` throws.
std::uint64_t write_committed(const comm::Context& context, const Path& target, Manifest manifest,
                              std::span<const Attachment> attachments, const Pieces& pieces);

}  // namespace argosy::checkpoint
