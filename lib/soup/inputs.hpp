#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "soup/recipe.hpp"
#include "soup/soup.hpp"

/// The checkpoints that go into a soup: opened, and refused unless they are snapshots of one model.
namespace argosy::soup {

/// A mean to compute: borrowed checkpoints and the weight of each.
struct Mean {
  std::vector<const checkpoint::Reader*> readers{};
  Mixture mixture{};
};

/// The members of a soup, opened, in the order given.
struct Inputs {
  std::vector<checkpoint::Reader> readers{};
  Mixture mixture{};
  [[nodiscard]] Mean mean() const;
  /// The uniform mean of some of them; members: ascending.
  [[nodiscard]] Mean mean_of(const std::vector<std::size_t>& members) const;
};

/// Keeps the checkpoints of `paths`, which a shell pattern has given, and drops their trailing slashes. Rank 0 looks:
/// it skips files with a warning and refuses folders that were never committed. **Collective.** Throws Error{data}.
[[nodiscard]] std::vector<std::string> checkpoints_among(comm::Context& context, const std::vector<std::string>& paths);

/// Opens all inputs, applies the recipe and checks that the members may be averaged. Reads weights only where two
/// checkpoints of one step have to be told apart. Rank 0 looks at the file system; the others get manifests and
/// weights from it. **Collective.** Throws as make_soup.
[[nodiscard]] Inputs open_inputs(comm::Context& context, const SoupConfig& config);

/// A table for people: the members, their steps, the metrics they were saved with and their weights in the soup.
[[nodiscard]] std::vector<std::string> table_of(const Inputs& inputs);

}  // namespace argosy::soup
