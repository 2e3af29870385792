#pragma once

#include <string>
#include <vector>

#include "model/model_config.hpp"
#include "partition/flat_space.hpp"

/// Which parameters a shape has and how they are grouped into units, without torch: the planner, import and export read
/// it too. Names are CTranslate2's (lib/model/README.md has the table).
namespace argosy::model {

struct UnitSpec {
  std::string name;  // "embedding", "encoder.0", "decoder.0", "head" …
  std::vector<partition::ParamSpec> params;
};

/// In the order of the forward pass. Tied: one unit "embedding" holds the matrix, the head bias and the final norms;
/// untied: "source_embedding", "target_embedding", "head" (decoder-only: "embedding", "head").
[[nodiscard]] std::vector<UnitSpec> unit_specs(const ModelShape& shape);

}  // namespace argosy::model
