#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "soup/soup.hpp"

/// The checkpoints that go into a soup: opened, and refused unless they are snapshots of one model.
namespace argosy::soup {

/// Opens all inputs and checks that they may be averaged. Reads no weights. Rank 0 looks at the file system, the others
/// get the manifests from it. **Collective.** Throws as make_soup.
[[nodiscard]] std::vector<checkpoint::Reader> open_ingredients(comm::Context& context, const SoupConfig& config);

/// Which ingredients, their steps and the metrics they were saved with, as a table for people.
[[nodiscard]] std::vector<std::string> table_of(const std::vector<checkpoint::Reader>& ingredients);

}  // namespace argosy::soup
