#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/stored_model.hpp"

/// What a model computes on given ids, as a function that programs with LibTorch pass to code without it. Two models
/// that agree bit for bit are compared by it (interchange).
namespace argosy::model {

struct Example {
  std::vector<std::int32_t> source;  // with EOS; empty for decoder-only models
  std::vector<std::int32_t> target;  // read after the start id, and predicted
};

struct Outputs {
  std::vector<float> hidden;  // [positions of the target, width]: of the last block
  double nll = 0;             // of all ids of the target

  bool operator==(const Outputs&) const = default;
};

/// By example. Calls with equal weights and examples give the same bits. Throws what the weights throw, and Error{data}
/// for more positions than the model has.
using Forward = std::function<std::vector<Outputs>(const spec::ModelSpec& spec, const WeightSource& weights,
                                                   std::span<const Example> examples)>;

}  // namespace argosy::model
