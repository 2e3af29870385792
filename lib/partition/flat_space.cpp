#include "partition/flat_space.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace argosy::partition {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Layout::Layout(std::vector<int> node_sizes) : node_sizes_(std::move(node_sizes)) {
  ARGOSY_CHECK(!node_sizes_.empty(), "a layout needs a node");
  for (const int size : node_sizes_) {
    ARGOSY_CHECK(size >= 1, "a node of {} ranks", size);
    first_rank_.push_back(world_);
    world_ += size;
    slots_ = std::max(slots_, size);
  }
}

int Layout::canonical_rank(int node, int local_rank) const {
  ARGOSY_CHECK(local_rank >= 0 && local_rank < node_size(node), "local rank {} of {}", local_rank, node_size(node));
  return first_rank_[static_cast<std::size_t>(node)] + local_rank;
}

int Layout::node_of(int canonical_rank) const {
  ARGOSY_CHECK(canonical_rank >= 0 && canonical_rank < world_, "rank {} of {}", canonical_rank, world_);
  return static_cast<int>(std::upper_bound(first_rank_.begin(), first_rank_.end(), canonical_rank) -
                          first_rank_.begin()) -
         1;
}

int Layout::local_rank_of(int canonical_rank) const {
  return canonical_rank - first_rank_[static_cast<std::size_t>(node_of(canonical_rank))];
}

int Layout::slot_owner(int node, int slot) const { return slot * node_size(node) / slots_; }

std::vector<int> Layout::slots_of(int canonical_rank) const {
  const int node = node_of(canonical_rank), local_rank = local_rank_of(canonical_rank);
  std::vector<int> slots;
  for (int slot = 0; slot < slots_; ++slot) {
    if (slot_owner(node, slot) == local_rank) slots.push_back(slot);
  }
  return slots;
}

Layout Layout::part(std::span<const int> members) const {
  std::vector<int> sizes(node_sizes_.size());
  int before = -1;
  for (const int member : members) {
    ARGOSY_CHECK(member > before, "rank {} after rank {}", member, before);
    ++sizes[static_cast<std::size_t>(node_of(before = member))];
  }
  std::erase(sizes, 0);
  return Layout(std::move(sizes));
}

std::int64_t ParamSpec::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

FlatSpace::FlatSpace(std::vector<ParamSpec> params, const Layout& layout)
    : params_(std::move(params)), layout_(layout), world_(layout.world()), slices_(layout.nodes() * layout.slots()) {
  std::stable_partition(params_.begin(), params_.end(), [](const ParamSpec& param) { return !param.decay; });
  std::int64_t end = 0;
  decay_begin_ = -1;
  for (const ParamSpec& param : params_) {
    const std::int64_t numel = param.numel();
    ARGOSY_CHECK(numel >= 0, "{} has a negative extent", param.name);
    const std::int64_t begin = round_up(end, unit_alignment);
    if (param.decay && decay_begin_ < 0) decay_begin_ = begin;
    offsets_.push_back(begin);
    end = begin + numel;
  }
  used_size_ = end;
  padded_size_ = round_up(end, slices_ * unit_alignment);
  if (decay_begin_ < 0) decay_begin_ = padded_size_;

  owner_.reserve(static_cast<std::size_t>(slices_));
  for (int slot = 0; slot < layout.slots(); ++slot) {
    for (int node = 0; node < layout.nodes(); ++node) {
      owner_.push_back(layout.canonical_rank(node, layout.slot_owner(node, slot)));
    }
  }
}

FlatSpace FlatSpace::among(std::vector<int> members, int world) const {
  ARGOSY_CHECK(std::ssize(members) == layout_.world() && world_ == layout_.world() && members.back() < world,
               "{} members of {} ranks for a space of {}", members.size(), world, layout_.world());
  FlatSpace placed = *this;
  for (int& owner : placed.owner_) owner = members[static_cast<std::size_t>(owner)];
  placed.members_ = std::move(members);
  placed.world_ = world;
  return placed;
}

std::size_t FlatSpace::index_of(const std::string& name) const {
  const auto found = std::ranges::find(params_, name, &ParamSpec::name);
  ARGOSY_CHECK(found != params_.end(), "no parameter {} in this flat space", name);
  return static_cast<std::size_t>(found - params_.begin());
}

std::int64_t FlatSpace::parameters() const noexcept {
  std::int64_t sum = 0;
  for (const ParamSpec& param : params_) sum += param.numel();
  return sum;
}

std::vector<int> FlatSpace::owned_slices(int canonical_rank) const {
  std::vector<int> slices;
  for (int slice = 0; slice < slices_; ++slice) {
    if (owner(slice) == canonical_rank) slices.push_back(slice);
  }
  return slices;
}

std::int64_t FlatSpace::owned_size(int canonical_rank) const {
  return std::count(owner_.begin(), owner_.end(), canonical_rank) * slice_size();
}

std::vector<std::int64_t> FlatSpace::owned_before(std::int64_t end) const {
  std::vector<std::int64_t> owned(static_cast<std::size_t>(world_), 0);
  for (int slice = 0; slice < slices_; ++slice)
    owned[static_cast<std::size_t>(owner(slice))] +=
        std::clamp(end - slice_begin(slice), std::int64_t{0}, slice_size());
  return owned;
}

bool have_equal_params(const FlatSpace& a, const FlatSpace& b) {
  return std::ranges::equal(a.params(), b.params(), [](const ParamSpec& p, const ParamSpec& q) {
    return p.name == q.name && p.shape == q.shape;
  });
}

bool have_equal_owners(const FlatSpace& a, const FlatSpace& b) {
  return a.world() == b.world() && a.layout() == b.layout() && a.owners() == b.owners();
}

std::vector<Interval> intervals_of(const FlatSpace& space, int rank) {
  const std::int64_t size = space.slice_size();
  std::vector<std::int64_t> local_begin(static_cast<std::size_t>(space.slices()));
  std::vector<std::int64_t> owned(static_cast<std::size_t>(space.world()), 0);
  for (int slice = 0; slice < space.slices(); ++slice) {
    std::int64_t& next = owned[static_cast<std::size_t>(space.owner(slice))];
    local_begin[static_cast<std::size_t>(slice)] = next;
    next += size;
  }

  std::vector<Interval> intervals;
  for (std::size_t param = 0; param < space.params().size(); ++param) {
    const std::int64_t offset = space.offset(param), end = offset + space.params()[param].numel();
    for (std::int64_t at = offset; at < end;) {
      const int slice = static_cast<int>(at / size);
      const std::int64_t slice_end = std::min(end, space.slice_begin(slice) + size);
      const std::int64_t local = local_begin[static_cast<std::size_t>(slice)] + at - space.slice_begin(slice);
      const int owner = space.owner(slice);
      if (rank < 0 || rank == owner) {
        Interval* last = intervals.empty() ? nullptr : &intervals.back();
        if (last != nullptr && last->param == param && last->rank == owner && last->end == at - offset) {
          last->end = slice_end - offset;  // slices lie in the shard in flat order
        } else {
          intervals.push_back({param, at - offset, slice_end - offset, owner, local});
        }
      }
      at = slice_end;
    }
  }
  return intervals;
}

}  // namespace argosy::partition
