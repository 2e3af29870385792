#include "checkpoint/model_view.hpp"

#include <algorithm>
#include <limits>

#include "checkpoint/hdf5_handle.hpp"

namespace argosy::checkpoint {
namespace {

using Shape = std::vector<hsize_t>;

/// Selects elements [begin, end) in row-major order: whole boxes, as large as they come.
[[nodiscard]] bool select_range(hid_t space, const Shape& shape, hsize_t begin, hsize_t end) {
  H5S_seloper_t join = H5S_SELECT_SET;
  while (begin < end) {
    Shape start(shape.size()), count(shape.size(), 1);
    hsize_t rest = begin;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) start[d] = rest % shape[d];
    // Adds dimensions from the innermost outwards, as long as the inner ones are selected completely.
    hsize_t volume = 1;
    std::size_t d = shape.size() - 1;
    for (; d > 0 && start[d] == 0 && end - begin >= volume * shape[d]; --d) {
      count[d] = shape[d];
      volume *= shape[d];
    }
    count[d] = std::min((end - begin) / volume, shape[d] - start[d]);
    if (H5Sselect_hyperslab(space, join, start.data(), nullptr, count.data(), nullptr) < 0) return false;
    join = H5S_SELECT_OR;
    begin += count[d] * volume;
  }
  return true;
}

/// HDF5 reads "%%" in the names of sources as "%".
std::string escaped(const std::string& name) {
  std::string text;
  for (const char c : name) text.append(c == '%' ? 2 : 1, c);
  return text;
}

/// Throws HDF5's message. The calls are the same at every save of a model: they fail at the first save or never.
void require(bool done, const std::string& wanted) {
  if (done) return;
  const std::string got = "HDF5: " + hdf5_error_text();
  throw Error{Fault::io,
              {.sentence = fmt::format("{}: {} cannot be made ({})", model_view_name, wanted, got),
               .wanted = wanted,
               .got = got,
               .where = model_view_name}};
}

Hdf5Handle list_of(hid_t list_class) { return {H5Pcreate(list_class), H5Pclose}; }
Hdf5Handle space_of(const Shape& shape) {
  return {H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose};
}

/// One parameter, from the shards that hold a piece of it.
void create_parameter(hid_t file, const partition::ParamSpec& param, std::span<const partition::Interval> intervals,
                      const std::string& source, const partition::FlatSpace& space) {
  const std::string wanted = "the view of " + param.name;
  const Hdf5Handle creation = list_of(H5P_DATASET_CREATE), links = list_of(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links.id(), 1);
  const float missing = std::numeric_limits<float>::quiet_NaN();
  H5Pset_fill_value(creation.id(), H5T_NATIVE_FLOAT, &missing);
  Shape shape{1};  // HDF5 has no virtual scalars
  if (!param.shape.empty()) shape.assign(param.shape.begin(), param.shape.end());
  for (const partition::Interval& interval : intervals) {
    const Shape owned{static_cast<hsize_t>(space.owned_size(interval.rank))};
    const Hdf5Handle to = space_of(shape), from = space_of(owned);
    const auto begin = static_cast<hsize_t>(interval.begin), end = static_cast<hsize_t>(interval.end);
    const auto offset = static_cast<hsize_t>(interval.local_offset);
    const std::string shard = escaped(shard_name(interval.rank, space.world()));
    require(select_range(to.id(), shape, begin, end) && select_range(from.id(), owned, offset, offset + end - begin) &&
                H5Pset_virtual(creation.id(), to.id(), shard.c_str(), source.c_str(), from.id()) >= 0,
            wanted);
  }
  const Hdf5Handle all = space_of(shape);
  const hid_t made =
      H5Dcreate2(file, param.name.c_str(), H5T_IEEE_F32LE, all.id(), links.id(), creation.id(), H5P_DEFAULT);
  const Hdf5Handle dataset{made, H5Dclose};
  require(dataset.id() >= 0, wanted);
}

std::string make_view(const Manifest& manifest) {
  constexpr std::size_t growth_bytes = 1 << 20;
  const QuietHdf5 quiet;
  const Hdf5Handle access = list_of(H5P_FILE_ACCESS);
  // The oldest format: newer ones begin with a checksum, which HDF5 1.10 gets wrong in images of files in memory.
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V110);
  H5Pset_fapl_core(access.id(), growth_bytes, false);
  const Hdf5Handle file{H5Fcreate("a view in memory", H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), H5Fclose};
  require(file.id() >= 0, "the file in memory");
  const std::size_t units = manifest.weight_units();
  for (std::size_t unit = 0; unit < units; ++unit) {
    const partition::FlatSpace& space = manifest.spaces[unit];
    const std::vector<partition::Interval> intervals = partition::intervals_of(space);
    const std::string source = escaped(fmt::format("unit/{}/master", manifest.unit_names[unit]));
    auto begin = intervals.begin();
    for (std::size_t param = 0; param < space.params().size(); ++param) {
      const auto end = std::find_if(begin, intervals.end(), [&](const auto& i) { return i.param != param; });
      create_parameter(file.id(), space.params()[param], {begin, end}, source, space);
      begin = end;
    }
  }
  require(H5Fflush(file.id(), H5F_SCOPE_GLOBAL) >= 0, "the view's metadata");
  const ssize_t size_bytes = H5Fget_file_image(file.id(), nullptr, 0);
  std::string bytes(static_cast<std::size_t>(std::max<ssize_t>(size_bytes, 0)), '\0');
  require(size_bytes > 0 && H5Fget_file_image(file.id(), bytes.data(), bytes.size()) == size_bytes, "the view's bytes");
  return bytes;
}

bool alike(const partition::FlatSpace& a, const partition::FlatSpace& b) {
  return partition::have_equal_owners(a, b) && partition::have_equal_params(a, b);
}

}  // namespace

const std::string& ModelView::of(const Manifest& manifest) {
  const bool known = unit_names_ == manifest.unit_names && std::ranges::equal(spaces_, manifest.spaces, alike);
  if (known) return bytes_;
  unit_names_ = manifest.unit_names;
  spaces_ = manifest.spaces;
  bytes_.clear();  // stays so when HDF5 fails: once is enough
  if (manifest.world() <= model_view_most_ranks) bytes_ = make_view(manifest);
  return bytes_;
}

}  // namespace argosy::checkpoint
