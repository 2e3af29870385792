#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "soup/recipe.hpp"
#include "soup/soup.hpp"
#include "spec/model_spec.hpp"

/// Opens the checkpoints of a soup and refuses those that are not of the same model.
namespace argosy::soup {

/// A mean to compute: borrowed checkpoints and the weight of each.
struct Mean {
  std::vector<const checkpoint::Reader*> readers{};
  Mixture mixture{};
  const spec::ModelSpec* whole = nullptr;  // of all their tasks (components.hpp); null: each has all of the model
};

/// The members of a soup, opened, in the order given.
struct Inputs {
  std::vector<checkpoint::Reader> readers{};
  Mixture mixture{};
  std::optional<spec::ModelSpec> whole{};  // with SoupConfig::components
  [[nodiscard]] Mean mean() const;
  /// The uniform mean of some members, given by ascending index.
  [[nodiscard]] Mean mean_of(const std::vector<std::size_t>& members) const;
};

/// The checkpoints among `paths`, which may come from a shell pattern, without trailing slashes. Skips files with a
/// warning and refuses folders that were never committed. Only rank 0 accesses the file system. **Collective.** Throws
/// Error{data}.
[[nodiscard]] std::vector<std::string> checkpoints_among(comm::Context& context, const std::vector<std::string>& paths);

/// Opens all inputs, applies the recipe and checks that the members may be averaged. Refuses two inputs with equal
/// weights, by their digests or, for different layouts, by the weights. The other ranks get manifests and factors from
/// rank 0. **Collective.** Throws as make_soup.
[[nodiscard]] Inputs open_inputs(comm::Context& context, const SoupConfig& config);

/// A table for people: the members, their steps, the metrics they were saved with and their weights in the soup.
[[nodiscard]] std::vector<std::string> table_of(const Inputs& inputs);

}  // namespace argosy::soup
