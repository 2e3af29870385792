#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/run_folder.hpp"

/// Loading as all ranks do it together: rank 0 chooses, every rank reads its part, all agree on whether it was sound.
namespace argosy::checkpoint {

/// The checkpoints that rank 0 opens, on all ranks, which get paths and manifests from it: network file systems show
/// each its own view of a folder, and links move. **Collective.** Throws what `choose` throws, Error{corrupt} when one
/// is not the one that was opened any more.
[[nodiscard]] std::vector<Reader> share(const comm::Context& context,
                                        const std::function<std::vector<Reader>()>& choose);

/// The checkpoint at `directory`, which may be a link to it that moves meanwhile, such as a run's `latest`: the same
/// one on all ranks. **Collective.** Throws as Reader's constructor and share().
[[nodiscard]] Reader open_on_all(const comm::Context& context, const Path& directory);

/// Store::load(). `folder` is rank 0's.
[[nodiscard]] std::optional<Reader> load(const comm::Context& context, RunFolder& folder,
                                         std::span<const UnitState> units, const LoadOptions& options);

/// Store::newest().
[[nodiscard]] std::optional<Reader> newest(const comm::Context& context, RunFolder& folder);

}  // namespace argosy::checkpoint
