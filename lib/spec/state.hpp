#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"
#include "partition/flat_space.hpp"

/// The tensors that training keeps for the parameters of a unit, as data: the optimizer declares them
/// (optim/optim_config.hpp), buffers allocate them, the planner counts their bytes, and checkpoints store them under
/// these names.
namespace argosy::spec {

/// Tensors that do not belong to an optimizer: the weights themselves, and their running mean.
inline constexpr std::string_view weights_tensor = "master", mean_tensor = "ema";
/// Of Adam; the only ones in checkpoints before format 1.3.
inline constexpr std::array<std::string_view, 2> adam_moments{"exp_avg", "exp_avg_sq"};

/// What a tensor has one number for: an element, or a block of elements, of the unit's flat space, or a row or a column
/// of a matrix (spec::Matrix).
enum class Extent { element, row, column };

/// The parameters that a tensor is kept for. Those without decay are norms and biases, the small ones.
enum class Covers { all, without_decay, with_decay };

struct StateTensor {
  std::string name;
  DType dtype = DType::f32;  // or u8, bf16
  Extent extent = Extent::element;
  Covers covers = Covers::all;  // by row or column: all
  /// By element: how many elements each number is for, a divisor of 256. Slices and parameters begin at multiples of
  /// 256, so that no block has a part on another rank.
  std::int64_t block = 1;
  /// Whether it has an fp32 for each element of the unit.
  [[nodiscard]] bool is_plain() const { return *this == StateTensor{name}; }
  /// Whether it lies in the unit's own flat space.
  [[nodiscard]] bool is_flat() const noexcept { return extent == Extent::element; }
  [[nodiscard]] bool is_for(const partition::ParamSpec& param) const noexcept {
    return covers == Covers::all || param.decay == (covers == Covers::with_decay);
  }
  bool operator==(const StateTensor&) const = default;
};

struct Unit;
/// The tensors that are kept for a unit, the weights first.
using StateOf = std::function<std::vector<StateTensor>(const Unit&)>;

/// What a rank keeps of a tensor.
struct OwnedPart {
  std::int64_t begin = 0;  // of the elements in the rank's shard that it is for
  std::int64_t size = 0;   // numbers
};
/// By canonical rank. space: the unit's, or the tensor's own (Unit::flat).
[[nodiscard]] std::vector<OwnedPart> owned_parts(const partition::FlatSpace& space, const StateTensor& tensor);

}  // namespace argosy::spec
