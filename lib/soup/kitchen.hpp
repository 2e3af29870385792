#pragma once

#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/weight_stream.hpp"
#include "soup/ingredients.hpp"

/// Sums slices of all ingredients in bounded memory: each slice of each ingredient is read, multiplied and added in
/// fp64 in the order of the ingredients; the sum is divided once and rounded once to the type of the result. Borrows
/// the ingredients and the spaces. One thread.
namespace argosy::soup {

class Kitchen {
 public:
  static constexpr std::int64_t slice_elements = 1 << 16;

  /// spaces: the units of the result; dtype: of its elements, f32 or bf16.
  Kitchen(const Ingredients& ingredients, std::span<const partition::FlatSpace> spaces, DType dtype, Moments moments);

  /// Elements [begin, begin + count) of a unit's flat space, of the weights (tensor 0) or the first (1) or second (2)
  /// moments, averaged; gaps are zero. count: at most slice_elements. Valid until the next call. Throws Error{corrupt};
  /// Error{data} for an ingredient's NaN or Inf; Error{numeric} for a mean that the type cannot hold.
  [[nodiscard]] Bytes average(std::size_t unit, std::size_t tensor, std::int64_t begin, std::int64_t count);
  /// Checks the blocks in progress to their ends. Throws Error{corrupt}.
  void finish();
  [[nodiscard]] std::uint64_t bytes_read() const;

 private:
  /// Adds one ingredient's elements to the sum.
  void add(std::size_t k, std::size_t unit, std::size_t tensor, std::int64_t begin, std::int64_t end, double weight);

  const Ingredients& ingredients_;
  std::span<const partition::FlatSpace> spaces_;
  std::vector<std::vector<checkpoint::WeightStream>> streams_;  // by tensor, ingredient
  std::vector<std::vector<std::vector<std::size_t>>> ids_;      // by ingredient, unit, parameter
  DType dtype_;
  Moments moments_;
  std::vector<double> sum_;
  std::vector<float> input_;
  std::vector<std::byte> out_;
};

}  // namespace argosy::soup
