#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/run_folder.hpp"

/// Loads a checkpoint on all ranks: rank 0 chooses one, each rank reads its part, and all agree on whether it was
/// sound.
namespace argosy::checkpoint {

/// Opens the checkpoints that rank 0 chooses, on all ranks. The other ranks get paths and manifests from rank 0,
/// because network file systems may show them another state of a folder, and links may change. **Collective.** Throws
/// what `choose` throws, Error{corrupt} when a checkpoint was replaced after `choose` opened it.
[[nodiscard]] std::vector<Reader> share(const comm::Context& context,
                                        const std::function<std::vector<Reader>()>& choose);

/// Opens the checkpoint at `directory`, the same one on all ranks even if `directory` is a link that changes meanwhile,
/// such as a run's `latest`. **Collective.** Throws as Reader's constructor and share().
[[nodiscard]] Reader open_on_all(const comm::Context& context, const Path& directory);

/// Store::load(). `folder` is rank 0's.
[[nodiscard]] std::optional<Reader> load(const comm::Context& context, RunFolder& folder,
                                         std::span<const UnitState> units, const LoadOptions& options);

/// Store::newest().
[[nodiscard]] std::optional<Reader> newest(const comm::Context& context, RunFolder& folder);

}  // namespace argosy::checkpoint
