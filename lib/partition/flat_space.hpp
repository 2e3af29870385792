#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Which rank owns what: the layout of ranks over nodes, and the flat space of a unit's parameters. Pure index
/// arithmetic.
namespace argosy::partition {

/// How many ranks each node has: the part of a topology that needs no MPI. All code that decides which rank owns what
/// takes a Layout.
class Layout {
 public:
  Layout() : Layout(std::vector<int>{1}) {}
  /// Ranks per node, by node index; all ≥ 1.
  explicit Layout(std::vector<int> node_sizes);
  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(node_sizes_.size()); }
  [[nodiscard]] int node_size(int node) const { return node_sizes_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const std::vector<int>& node_sizes() const noexcept { return node_sizes_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  /// S: ranks of the largest node.
  [[nodiscard]] int slots() const noexcept { return slots_; }
  [[nodiscard]] int canonical_rank(int node, int local_rank) const;
  [[nodiscard]] int node_of(int canonical_rank) const;
  [[nodiscard]] int local_rank_of(int canonical_rank) const;
  /// The local rank in `node` that owns `slot`: floor(slot·G_n/S).
  [[nodiscard]] int slot_owner(int node, int slot) const;
  /// Slots owned by a canonical rank, ascending.
  [[nodiscard]] std::vector<int> slots_of(int canonical_rank) const;
  /// Of these ranks alone (canonical, ascending): nodes without any are left out, and rank i is members[i] of this one.
  [[nodiscard]] Layout part(std::span<const int> members) const;
  bool operator==(const Layout&) const = default;

 private:
  std::vector<int> node_sizes_, first_rank_;
  int world_ = 0, slots_ = 0;
};

inline constexpr std::int64_t unit_alignment = 256;

struct ParamSpec {
  std::string name;  // "decoder/layer_0/self_attention/linear_0/weight"
  std::vector<std::int64_t> shape;
  bool decay = true;  // weight decay applies (matrices)
  [[nodiscard]] std::int64_t numel() const;
};

/// A unit's parameters laid end to end and padded, and which rank owns which slice. The layout is slot-major: S slots,
/// each of N sub-slices; slice k·N + n belongs to node n, local rank floor(k·G_n/S). Each parameter starts at a
/// multiple of 256 elements (the largest quantization block), parameters without decay first. The end is padded to a
/// multiple of N·S·256. Gaps stay zero.
class FlatSpace {
 public:
  /// Lays out `params`: those without decay first, otherwise in the given order.
  FlatSpace(std::vector<ParamSpec> params, const Layout& layout);
  /// The space of a part of all ranks, with owners in the numbering of all: members[i] in the place of i. Everywhere
  /// below, that is then the canonical rank. members: ascending, of `world` ranks.
  [[nodiscard]] FlatSpace among(std::vector<int> members, int world) const;

  /// In flat order.
  [[nodiscard]] const std::vector<ParamSpec>& params() const noexcept { return params_; }
  [[nodiscard]] std::int64_t offset(std::size_t param) const { return offsets_[param]; }  // elements
  /// Index of the parameter of that name. Throws Error{internal} if there is none.
  [[nodiscard]] std::size_t index_of(const std::string& name) const;
  /// Elements before the first parameter that decays.
  [[nodiscard]] std::int64_t decay_begin() const noexcept { return decay_begin_; }
  [[nodiscard]] std::int64_t used_size() const noexcept { return used_size_; }      // end of the last parameter
  [[nodiscard]] std::int64_t padded_size() const noexcept { return padded_size_; }  // elements
  [[nodiscard]] std::int64_t parameters() const noexcept;                           // sum of numel

  [[nodiscard]] int slices() const noexcept { return slices_; }  // N·S
  [[nodiscard]] std::int64_t slice_size() const noexcept { return padded_size_ / slices_; }
  [[nodiscard]] std::int64_t slice_begin(int slice) const noexcept { return slice * slice_size(); }
  /// Canonical rank that owns a slice.
  [[nodiscard]] int owner(int slice) const { return owner_[static_cast<std::size_t>(slice)]; }
  [[nodiscard]] const std::vector<int>& owners() const noexcept { return owner_; }
  /// Slices of a canonical rank, ascending.
  [[nodiscard]] std::vector<int> owned_slices(int canonical_rank) const;
  [[nodiscard]] std::int64_t owned_size(int canonical_rank) const;
  /// How many of the elements before `end` each canonical rank owns. They come first in its shard.
  [[nodiscard]] std::vector<std::int64_t> owned_before(std::int64_t end) const;
  /// Of the ranks that share the space.
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  /// How many ranks the numbering of owners has, and which of them share the space; empty: all.
  [[nodiscard]] int world() const noexcept { return world_; }
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }

 private:
  std::vector<ParamSpec> params_;
  std::vector<std::int64_t> offsets_;
  Layout layout_;
  std::vector<int> owner_, members_;
  int world_ = 1, slices_ = 1;
  std::int64_t decay_begin_ = 0, used_size_ = 0, padded_size_ = 0;
};

/// Whether both lay out parameters of the same names and shapes, in the same order; the layouts may differ.
[[nodiscard]] bool have_equal_params(const FlatSpace& a, const FlatSpace& b);

/// Whether each slice has the same owner in both, of as many ranks.
[[nodiscard]] bool have_equal_owners(const FlatSpace& a, const FlatSpace& b);

/// One piece of a parameter on one rank: elements [begin, end) of parameter `param` (index in the FlatSpace) lie at
/// [local_offset, local_offset + end - begin) of the rank's shard (its slices, ascending, end to end).
struct Interval {
  std::size_t param = 0;
  std::int64_t begin = 0, end = 0;
  int rank = 0;
  std::int64_t local_offset = 0;
  auto operator<=>(const Interval&) const = default;
};

/// All intervals of a space, or of one rank if `rank` ≥ 0, sorted by (param, begin), neighbors joined.
[[nodiscard]] std::vector<Interval> intervals_of(const FlatSpace& space, int rank = -1);

}  // namespace argosy::partition
