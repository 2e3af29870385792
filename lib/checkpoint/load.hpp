#pragma once

#include <optional>
#include <span>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/run_folder.hpp"

/// Loading as all ranks do it together: rank 0 chooses, every rank reads its part, all agree on whether it was sound.
namespace argosy::checkpoint {

/// Store::load(). `folder` is rank 0's.
[[nodiscard]] std::optional<Reader> load(const comm::Context& context, RunFolder& folder,
                                         std::span<const UnitState> units, const LoadOptions& options);

/// Store::newest().
[[nodiscard]] std::optional<Reader> newest(const comm::Context& context, RunFolder& folder);

}  // namespace argosy::checkpoint
