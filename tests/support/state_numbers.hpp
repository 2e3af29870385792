#pragma once

#include <algorithm>
#include <vector>

#include "train/buffers.hpp"

namespace argosy::test {

/// Every number of a model's state, by unit, tensor and parameter; zeros for those of other ranks. Pads are left out,
/// so that the sum over the ranks does not depend on their layout.
inline std::vector<double> numbers_of(const std::vector<partition::FlatSpace>& spaces, train::Buffers& buffers,
                                      int rank) {
  std::vector<double> all;
  for (std::size_t u = 0; u < spaces.size(); ++u) {
    for (const auto& [tensor, shard] : buffers.units()[u].state) {
      const std::int64_t elements = tensor.block,
                         first = spec::owned_parts(spaces[u], tensor)[static_cast<std::size_t>(rank)].begin;
      const at::Tensor numbers = shard.to(at::kDouble);
      std::vector<std::size_t> begins;
      for (const partition::ParamSpec& param : spaces[u].params()) {
        begins.push_back(all.size());
        if (tensor.is_for(param))
          all.resize(all.size() + static_cast<std::size_t>((param.numel() + elements - 1) / elements));
      }
      for (const partition::Interval& own : partition::intervals_of(spaces[u], rank)) {
        if (!tensor.is_for(spaces[u].params()[own.param])) continue;
        std::copy_n(numbers.const_data_ptr<double>() + (own.local_offset - first) / elements,
                    (own.end - own.begin + elements - 1) / elements,
                    all.begin() + static_cast<std::ptrdiff_t>(begins[own.param]) + own.begin / elements);
      }
    }
  }
  return all;
}

}  // namespace argosy::test
