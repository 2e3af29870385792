#pragma once

#include <cstdint>
#include <vector>

#include "optim/optimizer.hpp"

/// AdamW's two moments of a piece in fp32, whatever they are stored as (arXiv:2110.02861 for 8 bits, arXiv:2309.01507
/// for 4): fp32 itself; bf16, rounded up or down at random; or codes of 8 or 4 bits with one fp32 scale, the largest
/// absolute value, for a block of 256 or 128 elements. A piece whose moments are stored as fp32 is one of a small or
/// embedding tensor.
namespace argosy::optim {

/// The values of the codes, ascending, of the first (signed) or second moment. int8: the dynamic map, 0, 1 and for i in
/// 0 … 6 the midpoints of an even partition of [0.1, 1], times 10^(i-6): 2^i of each sign, or 2^(i+1) of one. int4:
/// that map with i in 0 … 2, times 10^(i-2), and (i+1)/16, which has no zero.
[[nodiscard]] std::vector<float> codes_of(StateType type, bool is_signed);

/// `count` elements of a piece from element `begin` on, a multiple of 256.
[[nodiscard]] Piece part_of(const Piece& piece, std::int64_t begin, std::int64_t count);

class Moments {
 public:
  explicit Moments(StateType type);
  /// Whether those of a piece are kept in fp32.
  [[nodiscard]] static bool is_plain(const Piece& piece);
  /// The stored tensor itself if the piece is plain. which: 0, 1.
  [[nodiscard]] at::Tensor read(const Piece& piece, std::size_t which) const;
  /// A second moment above 0 does not become 0: the step is divided by its root. number: of the update.
  void write(const Piece& piece, std::size_t which, const at::Tensor& values, std::int64_t number) const;

 private:
  [[nodiscard]] at::Tensor codes(const Piece& piece, std::size_t which) const;
  StateType type_;
  std::int64_t block_ = 0;             // elements for each scale
  at::Tensor values_[2], between_[2];  // of codes; the midpoints of neighbours
};

}  // namespace argosy::optim
