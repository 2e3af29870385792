#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"

/// One shard is an HDF5 file of contiguous datasets with an XXH3-128 digest of every 4 MiB block (FORMAT.md §2). HDF5
/// writes the metadata (the skeleton); pwrite fills in the payload. The functions create_… and open_… call HDF5: one
/// thread calls them. Writing and reading payload calls neither HDF5 nor MPI.
namespace argosy::checkpoint {

inline constexpr std::uint64_t block_bytes = 4ULL << 20;
/// Blocks are copied and hashed in pieces of this size, which stay in a core's own cache between the copy and the hash.
inline constexpr std::uint64_t piece_bytes = 256ULL << 10;
inline constexpr int format_major = 1, format_minor = 5;  // that this version reads
inline constexpr int usual_minor = 3;                     // that it writes where nothing is stored that needs more
inline constexpr int other_tensors_minor = 4;             // for tensors in other types, by block, or of some parameters

struct DatasetSpec {
  std::string name;  // "unit/encoder.0/master", without a leading slash
  DType dtype = DType::f32;
  std::uint64_t elements = 0;
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return elements * size_of(dtype); }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return (size_bytes() + block_bytes - 1) / block_bytes; }
  bool operator==(const DatasetSpec&) const = default;
};

/// The root attributes. They identify the save that a file belongs to.
struct ShardIdentity {
  std::string run_uuid, save_nonce;
  std::int64_t step = 0;
  int rank = 0, world = 1;  // canonical
  int minor = usual_minor;
};

/// Where HDF5 has placed each dataset and its digest table in the file.
struct ShardMap {
  struct Dataset {
    DatasetSpec spec;
    std::uint64_t offset = 0, digest_offset = 0;  // bytes from the start of the file; 0 when empty
  };
  std::vector<Dataset> datasets;  // in creation order
  std::uint64_t size_bytes = 0;   // of the file
};

/// "shard-00003-of-00016.h5"; above 4096 ranks in folders of 512 ("s00/…").
[[nodiscard]] std::string shard_name(int rank, int world);

/// Creates `path` with all datasets and digest tables, without payload, and closes it. A temporary file next to it
/// reserves 1 MiB meanwhile, so that HDF5 can close the file on a full disk. Throws Error{io}.
[[nodiscard]] ShardMap create_shard(const Files& files, const Path& path, const ShardIdentity& identity,
                                    std::span<const DatasetSpec> specs);

/// Opens `path`, compares attributes, types, shapes, layout and offsets with the given ones, and closes it. Throws
/// Error{corrupt}, which names the file and the dataset.
[[nodiscard]] ShardMap open_shard(const Files& files, const Path& path, const ShardIdentity& identity,
                                  std::span<const DatasetSpec> specs);

struct Written {
  std::uint64_t size_bytes = 0;  // of the file
  Digest root{};
  bool finite = true;  // no NaN or Inf in any f32 dataset
};

/// Fills a skeleton: reserves disk space where the file system can, writes payload[i] (of the size of dataset i) block
/// by block with its digests, syncs and closes. Throws Error{io}.
[[nodiscard]] Written write_shard(const Files& files, const Path& path, const ShardMap& map,
                                  std::span<const Bytes> payload);

/// Writes `bytes` at `offset` block by block and returns the digests of the blocks. finite: for f32; set to false when
/// a value is NaN or Inf. Throws Error{io}.
[[nodiscard]] std::vector<Digest> write_blocks(File& file, Bytes bytes, std::uint64_t offset, bool* finite = nullptr);

/// XXH3-128 over, for each dataset: name, NUL, byte count (u64 little-endian), block digests. tables: by dataset.
[[nodiscard]] Digest root_digest(const ShardMap& map, std::span<const std::vector<Digest>> tables);
[[nodiscard]] bool all_finite(std::span<const float> values) noexcept;
/// Whether stored values contain no NaN or Inf; always true for types other than f32 and bf16.
[[nodiscard]] bool all_finite(Bytes values, DType dtype) noexcept;
/// Converts in place: the second half of `values` holds values.size() bf16, which become the floats of `values`.
void widen_bf16(std::span<float> values) noexcept;

}  // namespace argosy::checkpoint
