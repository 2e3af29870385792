#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "soup/recipe.hpp"
#include "soup/soup.hpp"

/// The checkpoints that go into a soup: opened, and refused unless they are snapshots of one model.
namespace argosy::soup {

/// What is cooked: borrowed readers and how much of each.
struct Ingredients {
  std::vector<const checkpoint::Reader*> readers{};
  Mixture mixture{};
};

/// The members of a soup, opened, in the order given.
struct Pantry {
  std::vector<checkpoint::Reader> readers{};
  Mixture mixture{};
  [[nodiscard]] Ingredients ingredients() const;
  /// The uniform mean of some of them; members: ascending.
  [[nodiscard]] Ingredients mean_of(const std::vector<std::size_t>& members) const;
};

/// The checkpoints among what a shell pattern has given: rank 0 passes over files with a warning and refuses folders
/// that were never committed; all ranks get its list, without trailing slashes. **Collective.** Throws Error{data}.
[[nodiscard]] std::vector<std::string> checkpoints_among(comm::Context& context,
                                                         const std::vector<std::string>& inputs);

/// Opens all inputs, applies the recipe and checks that the members may be averaged. Reads no weights, but where two of
/// one step have to be told apart. Rank 0 looks at
/// the file system, the others get manifests and weights from it. **Collective.** Throws as make_soup.
[[nodiscard]] Pantry open_ingredients(comm::Context& context, const SoupConfig& config);

/// Which members, their steps, the metrics they were saved with and their part of the soup, as a table for people.
[[nodiscard]] std::vector<std::string> table_of(const Pantry& pantry);

}  // namespace argosy::soup
