#pragma once

#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_set.hpp"
#include "soup/inputs.hpp"

/// Computes a mean slice by slice in bounded memory. Each slice of each checkpoint is read, multiplied by its weight
/// and added in fp64, in the order of the checkpoints. The sum is divided once and rounded once to the output's type.
/// Borrows the checkpoints and the spaces. One thread.
namespace argosy::soup {

class Averager {
 public:
  static constexpr std::int64_t slice_elements = 1 << 16;

  /// spaces: of the units of the output. tensors: of each unit, by element, the weights first. dtype: the type of its
  /// elements, f32 or bf16.
  Averager(const Mean& mean, std::span<const partition::FlatSpace> spaces, std::span<const spec::StateTensor> tensors,
           DType dtype, Moments moments);

  /// Elements [begin, begin + count) of the mean of a unit's flat space; gaps are zero. tensor: index of a tensor of
  /// the output. count: at most slice_elements. The bytes are valid until the next call. Throws Error{corrupt};
  /// Error{data} for NaN or Inf in a checkpoint; Error{numeric} for a mean too large for dtype.
  [[nodiscard]] Bytes average(std::size_t unit, std::size_t tensor, std::int64_t begin, std::int64_t count);
  /// Verifies the rest of the blocks that were read in part. Throws Error{corrupt}.
  void finish();
  [[nodiscard]] std::uint64_t bytes_read() const;

 private:
  /// Adds the elements of checkpoint k to the sum.
  void add(std::size_t k, std::size_t unit, std::size_t tensor, std::int64_t begin, std::int64_t end, double weight);

  const Mean& mean_;
  std::span<const partition::FlatSpace> spaces_;
  std::vector<std::vector<checkpoint::WeightStream>> streams_;  // by tensor, checkpoint
  std::vector<std::vector<std::vector<std::size_t>>> ids_;      // by checkpoint, unit, parameter; none: without it
  std::vector<double> divisors_;                                // by unit
  DType dtype_;
  Moments moments_;
  std::vector<double> sum_;
  std::vector<float> input_;
  std::vector<std::byte> out_;
};

}  // namespace argosy::soup
