#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <variant>

#include "checkpoint/hdf5_handle.hpp"
#include "checkpoint/shard_file.hpp"

namespace argosy::checkpoint {
namespace {

constexpr std::string_view shard_format = "argosy-ckpt", byte_order = "little";
constexpr hsize_t digest_bytes = 16;

struct LastError {
  std::string text;
  int number = 0;  // errno of the system call that failed, if one did
};

/// The first line of HDF5's error stack.
LastError last_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        auto& line = *static_cast<std::string*>(out);
        if (line.empty() && error->desc != nullptr) line = error->desc;
        return 0;
      },
      &text);
  if (text.empty()) text = "no reason given";
  // "file write failed: time = …, errno = 28, error message = …, buf = …": the call and the reason are enough.
  const std::size_t details = std::min(text.find(": time ="), text.find(": name ="));
  const std::size_t at = text.find("errno = ");
  if (at == std::string::npos) return {std::move(text)};
  const int number = std::atoi(text.c_str() + at + std::strlen("errno = "));
  const char* const name = strerrorname_np(number);
  const char* const reason = strerrordesc_np(number);
  return {.text = fmt::format("{} ({}: {})", text.substr(0, details), reason == nullptr ? "?" : reason,
                              name == nullptr ? "errno" : name),
          .number = number};
}

[[noreturn]] void fail_hdf5(const std::string& action, const Path& path) {
  const std::string got = "HDF5: " + hdf5_error_text();
  throw_claim(Fault::io, fmt::format("{}: cannot {}: {}", path.string(), action, got), path.string(), "to " + action,
              got, "check the free space and the permissions of the folder");
}

[[noreturn]] void fail_content(const std::string& wanted, const std::string& got, const Path& path) {
  throw_error(Fault::corrupt, path.string(), wanted, got,
              "this shard is damaged or belongs to another save: use another checkpoint");
}

/// HDF5 could not read something. It is damaged, unless a system call failed.
[[noreturn]] void fail_reading(const std::string& wanted, const Path& path) {
  const LastError error = last_error();
  // With these HDF5 has followed a damaged address to a place outside any file.
  if (error.number == 0 || error.number == EINVAL || error.number == EFBIG || error.number == EOVERFLOW)
    fail_content(wanted, "HDF5: " + error.text, path);
  throw_error(Fault::io, path.string(), wanted, "HDF5: " + error.text,
              "check the disk, its mount and the permissions, then rerun");
}

constexpr const char *bf16_attribute = "dtype", *bf16_name = "bfloat16";

/// The upper half of an fp32 as HDF5 describes it. HDF5 must never convert it: 100 times slower than reading it.
Hdf5Handle bf16_type() {
  constexpr std::size_t sign = 15, exponent = 7, exponent_bits = 8, mantissa = 0, mantissa_bits = 7, bias = 127;
  Hdf5Handle type{H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
  H5Tset_fields(type.id(), sign, exponent, exponent_bits, mantissa, mantissa_bits);
  H5Tset_ebias(type.id(), bias);
  H5Tset_precision(type.id(), 16);
  H5Tset_size(type.id(), 2);
  return type;
}

Hdf5Handle file_type_of(DType dtype) {
  const auto copy = [](hid_t type) { return Hdf5Handle{H5Tcopy(type), H5Tclose}; };
  switch (dtype) {
    case DType::f32:
      return copy(H5T_IEEE_F32LE);
    case DType::bf16:
      return bf16_type();
    case DType::u8:
      return copy(H5T_STD_U8LE);
    case DType::u32:
      return copy(H5T_STD_U32LE);
    case DType::u64:
      return copy(H5T_STD_U64LE);
    default:
      throw_broken_invariant("dtype", fmt::format("no shard dataset of type {}", name_of(dtype)),
                             std::source_location::current());
  }
}

Hdf5Handle access_list() {
  constexpr hsize_t threshold = 65536, alignment = 1 << 20;
  Hdf5Handle list{H5Pcreate(H5P_FILE_ACCESS), H5Pclose};
  // V110 puts a checksum on every piece of metadata; aligned payload suits striped file systems; flock fails on many of
  // them.
  H5Pset_libver_bounds(list.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_alignment(list.id(), threshold, alignment);
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(list.id(), false, true);
#endif
  return list;
}

using Attribute = std::variant<std::string, std::int64_t>;

std::vector<std::pair<std::string, Attribute>> attributes_of(const ShardIdentity& identity) {
  return {{"format", std::string(shard_format)},
          {"run_uuid", identity.run_uuid},
          {"save_nonce", identity.save_nonce},
          {"byte_order", std::string(byte_order)},
          {"format_major", format_major},
          {"format_minor", identity.minor},
          {"step", identity.step},
          {"rank", identity.rank},
          {"world", identity.world}};
}

std::string spelled(const Attribute& value) {
  const auto* const text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : std::to_string(std::get<std::int64_t>(value));
}

void write_attribute(hid_t object, const std::string& name, const Attribute& value, const Path& path) {
  const auto* const text = std::get_if<std::string>(&value);
  const Hdf5Handle type{H5Tcopy(text != nullptr ? H5T_C_S1 : H5T_STD_I64LE), H5Tclose};
  const void* bytes = std::get_if<std::int64_t>(&value);
  if (text != nullptr) {
    H5Tset_size(type.id(), std::max<std::size_t>(text->size(), 1));
    H5Tset_strpad(type.id(), H5T_STR_NULLPAD);
    bytes = text->data();
  }
  const Hdf5Handle scalar{H5Screate(H5S_SCALAR), H5Sclose};
  const hid_t made = H5Acreate2(object, name.c_str(), type.id(), scalar.id(), H5P_DEFAULT, H5P_DEFAULT);
  const Hdf5Handle attribute{made, H5Aclose};
  if (attribute.id() < 0 || H5Awrite(attribute.id(), type.id(), bytes) < 0) fail_hdf5("write attributes", path);
}

/// nullopt: there is none, or it is not one value of the same type as `like`.
std::optional<Attribute> read_attribute(hid_t object, const std::string& name, const Attribute& like) {
  constexpr std::size_t longest = 256;
  const Hdf5Handle attribute{H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose};
  if (attribute.id() < 0) return std::nullopt;
  const Hdf5Handle type{H5Aget_type(attribute.id()), H5Tclose};
  const Hdf5Handle space{H5Aget_space(attribute.id()), H5Sclose};
  if (H5Sget_simple_extent_npoints(space.id()) != 1) return std::nullopt;
  if (std::holds_alternative<std::string>(like)) {
    if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 || H5Tget_size(type.id()) > longest)
      return std::nullopt;
    std::string text(H5Tget_size(type.id()), '\0');
    return H5Aread(attribute.id(), type.id(), text.data()) < 0 ? std::nullopt : std::optional<Attribute>{text};
  }
  std::int64_t number = 0;
  if (H5Tequal(type.id(), H5T_STD_I64LE) <= 0 || H5Aread(attribute.id(), H5T_STD_I64LE, &number) < 0)
    return std::nullopt;
  return number;
}

void check_attributes(hid_t file, const ShardIdentity& identity, const Path& path) {
  for (const auto& [name, wanted] : attributes_of(identity)) {
    const std::optional<Attribute> got = read_attribute(file, name, wanted);
    // A newer minor version adds things; the manifest says whether we may read it.
    if (got == wanted || (got && name == "format_minor")) continue;
    fail_content(fmt::format("attribute {} = {}", name, spelled(wanted)), got ? spelled(*got) : "no such attribute",
                 path);
  }
}

std::string digest_name(const std::string& dataset) { return "digest/" + dataset; }

/// Creation properties that leave no time in the file: the same content gives the same bytes.
Hdf5Handle timeless(hid_t list_class) {
  Hdf5Handle list{H5Pcreate(list_class), H5Pclose};
  H5Pset_obj_track_times(list.id(), false);
  return list;
}

/// The groups above a dataset that are not there yet.
void create_groups(hid_t file, const std::string& dataset, const Path& path) {
  for (std::size_t end = dataset.find('/'); end != std::string::npos; end = dataset.find('/', end + 1)) {
    const std::string name = dataset.substr(0, end);
    if (H5Lexists(file, name.c_str(), H5P_DEFAULT) > 0) continue;
    const Hdf5Handle creation = timeless(H5P_GROUP_CREATE);
    const Hdf5Handle group{H5Gcreate2(file, name.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT), H5Gclose};
    if (group.id() < 0) fail_hdf5("create group " + name, path);
  }
}

/// Creates one contiguous dataset and returns its place in the file.
std::uint64_t create_dataset(hid_t file, const std::string& name, DType dtype, std::span<const hsize_t> shape,
                             const Path& path) {
  const Hdf5Handle type = file_type_of(dtype);
  create_groups(file, name, path);
  const Hdf5Handle creation = timeless(H5P_DATASET_CREATE);
  H5Pset_layout(creation.id(), H5D_CONTIGUOUS);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);
  const Hdf5Handle space{H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose};
  const Hdf5Handle dataset{
      H5Dcreate2(file, name.c_str(), type.id(), space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT), H5Dclose};
  if (dataset.id() < 0) fail_hdf5("create dataset " + name, path);
  if (dtype == DType::bf16) write_attribute(dataset.id(), bf16_attribute, bf16_name, path);
  const bool empty = std::find(shape.begin(), shape.end(), hsize_t{0}) != shape.end();
  if (empty) return 0;
  const haddr_t offset = H5Dget_offset(dataset.id());
  if (offset == HADDR_UNDEF) fail_hdf5("allocate dataset " + name, path);
  return offset;
}

/// Checks one dataset and returns its place in the file.
std::uint64_t open_dataset(hid_t file, const std::string& name, DType dtype, std::span<const hsize_t> shape,
                           std::uint64_t file_bytes, const Path& path) {
  const Hdf5Handle type = file_type_of(dtype);
  const Hdf5Handle dataset{H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose};
  if (dataset.id() < 0) fail_reading("a readable dataset " + name, path);
  const Hdf5Handle got_type{H5Dget_type(dataset.id()), H5Tclose};
  const Hdf5Handle got_space{H5Dget_space(dataset.id()), H5Sclose};
  const Hdf5Handle creation{H5Dget_create_plist(dataset.id()), H5Pclose};
  if (H5Tequal(got_type.id(), type.id()) <= 0)
    fail_content(fmt::format("dataset {} of type {}", name, name_of(dtype)), "another type", path);
  if (dtype == DType::bf16 && read_attribute(dataset.id(), bf16_attribute, bf16_name) != Attribute{bf16_name})
    fail_content(fmt::format("attribute {} = {} of dataset {}", bf16_attribute, bf16_name, name),
                 "none or another value", path);
  std::array<hsize_t, 2> got{};
  if (H5Sget_simple_extent_ndims(got_space.id()) != static_cast<int>(shape.size()) ||
      H5Sget_simple_extent_dims(got_space.id(), got.data(), nullptr) < 0 ||
      !std::equal(shape.begin(), shape.end(), got.begin()))
    fail_content(fmt::format("{} elements in dataset {}", shape[0], name), fmt::format("{}", got[0]), path);
  if (H5Pget_layout(creation.id()) != H5D_CONTIGUOUS || H5Pget_external_count(creation.id()) != 0)
    fail_content("a contiguous dataset " + name, "another layout", path);
  std::uint64_t size_bytes = size_of(dtype);
  for (const hsize_t extent : shape) size_bytes *= extent;
  if (size_bytes == 0) return 0;
  const haddr_t offset = H5Dget_offset(dataset.id());
  if (offset == HADDR_UNDEF || offset > file_bytes || size_bytes > file_bytes - offset)
    fail_content(fmt::format("{} bytes of dataset {} inside the file", size_bytes, name), "a place outside it", path);
  return offset;
}

/// Calls `place(name, type, shape)` for each dataset and its digest table.
ShardMap map_of(std::span<const DatasetSpec> specs,
                const std::function<std::uint64_t(const std::string&, DType, std::span<const hsize_t>)>& place) {
  ShardMap map;
  for (const DatasetSpec& spec : specs) {
    const std::array<hsize_t, 1> shape{spec.elements};
    const std::array<hsize_t, 2> table{spec.blocks(), digest_bytes};
    ShardMap::Dataset dataset{.spec = spec};
    dataset.offset = place(spec.name, spec.dtype, shape);
    dataset.digest_offset = place(digest_name(spec.name), DType::u8, table);
    map.datasets.push_back(std::move(dataset));
  }
  return map;
}

/// Bytes that take their full size also on a file system that compresses, such as an NFS server's.
std::vector<std::byte> incompressible(std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  std::mt19937 random;  // NOLINT(*-msc51-cpp): the same ones each time will do
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// A file of 1 MiB that is removed again with this object.
class Ballast {
 public:
  Ballast(const Files& files, Path path) : files_(files), path_(std::move(path)) {
    constexpr std::uint64_t size_bytes = 1 << 20;
    File file = files_.create(path_);
    try {
      if (!file.reserve(size_bytes)) file.write_at(incompressible(size_bytes), 0);
      file.close();
    } catch (const Error&) {
      files_.os().unlink(path_.c_str());
      throw;
    }
  }
  ~Ballast() { files_.os().unlink(path_.c_str()); }
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;

 private:
  const Files& files_;
  Path path_;
};

}  // namespace

std::string hdf5_error_text() { return last_error().text; }

ShardMap create_shard(const Files& files, const Path& path, const ShardIdentity& identity,
                      std::span<const DatasetSpec> specs) {
  const QuietHdf5 quiet;
  const Hdf5Handle access = access_list(), creation = timeless(H5P_FILE_CREATE);
  Hdf5Handle file{H5I_INVALID_HID, H5Fclose};
  ShardMap map;
  {
    // Goes before the file is closed on every way out: after ENOSPC on an open file HDF5 1.10 crashes unless the close
    // succeeds.
    const Ballast ballast{files, path.parent_path() / fmt::format("ballast-{:05}", identity.rank)};
    file.reset(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation.id(), access.id()));
    if (file.id() < 0) fail_hdf5("create a shard", path);
    for (const auto& [name, value] : attributes_of(identity)) write_attribute(file.id(), name, value, path);
    map = map_of(specs, [&](const std::string& name, DType dtype, std::span<const hsize_t> shape) {
      return create_dataset(file.id(), name, dtype, shape, path);
    });
    if (H5Fflush(file.id(), H5F_SCOPE_GLOBAL) < 0) fail_hdf5("write the shard's metadata", path);
  }
  if (!file.close()) fail_hdf5("close the shard", path);
  const auto facts = files.stat(path);
  ARGOSY_CHECK(facts.has_value(), "{} vanished", path.string());
  map.size_bytes = facts->size_bytes;
  return map;
}

ShardMap open_shard(const Files& files, const Path& path, const ShardIdentity& identity,
                    std::span<const DatasetSpec> specs) {
  const QuietHdf5 quiet;
  const auto facts = files.stat(path);
  if (!facts) fail_content("a shard", "no such file", path);
  if (!facts->is_regular) fail_content("a regular file", "something else", path);
  const Hdf5Handle access = access_list();
  const Hdf5Handle file{H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose};
  if (file.id() < 0) fail_reading("a readable HDF5 file", path);
  check_attributes(file.id(), identity, path);
  ShardMap map = map_of(specs, [&](const std::string& name, DType dtype, std::span<const hsize_t> shape) {
    return open_dataset(file.id(), name, dtype, shape, facts->size_bytes, path);
  });
  map.size_bytes = facts->size_bytes;
  return map;
}

}  // namespace argosy::checkpoint
