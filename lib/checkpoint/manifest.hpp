#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_file.hpp"
#include "core/hash.hpp"

/// MANIFEST.json as a value (FORMAT.md §3). The manifest holds the digests of all shards and copied files, and its last
/// line holds the digest of all bytes before it; so that line verifies the whole directory. The floats of the sections
/// are read back bit for bit: their bits are stored next to the decimals.
namespace argosy::checkpoint {

inline constexpr std::string_view manifest_name = "MANIFEST.json";
inline constexpr std::uint64_t manifest_limit_bytes = 256ULL << 20;

struct Manifest {
  std::string run_uuid{}, save_nonce{};  // 32 and 16 hex digits
  Kind kind = Kind::temp;
  bool finite = true;          // no NaN or Inf is stored
  DType weights = DType::f32;  // bf16 only where no other tensor is stored
  std::int64_t step = 0;
  double wall_time_s = 0;
  Sections sections{};
  std::vector<std::string> unit_names{};
  /// By unit; at least one. The first is one of all ranks; others may be of some of these (FlatSpace::among).
  std::vector<partition::FlatSpace> spaces{};
  /// Each unit's stored tensors, the weights first. Units without weights, which hold optimizer tensors of other
  /// shapes, come last.
  std::vector<std::vector<spec::StateTensor>> tensors{};
  struct Shard {
    std::uint64_t size_bytes = 0;
    Digest root;
  };
  std::vector<Shard> shards{};  // by canonical rank
  struct Attached {
    std::string name;
    std::uint64_t size_bytes = 0;
    Digest digest;
  };
  std::vector<Attached> files{};
  double save_seconds = 0;

  [[nodiscard]] int world() const noexcept { return spaces.front().world(); }
  [[nodiscard]] ShardIdentity identity(int rank) const { return {run_uuid, save_nonce, step, rank, world(), minor()}; }
  /// The datasets of one rank's file in creation order: the tensors of each unit, then the columns of the index.
  /// Weights in bf16 have the name param.
  [[nodiscard]] std::vector<DatasetSpec> specs(int rank) const;
  /// The payload of /index, by column: a rank's intervals of all units.
  [[nodiscard]] std::vector<std::vector<std::byte>> index(int rank) const;
  /// The number of units with weights.
  [[nodiscard]] std::size_t weight_units() const noexcept;
  [[nodiscard]] bool has_optimizer_state() const noexcept;
  [[nodiscard]] bool has_mean() const noexcept;
  /// The minor version of which the files are.
  [[nodiscard]] int minor() const noexcept;
};

/// The text of the file, including its own digest.
[[nodiscard]] std::string text_of(const Manifest& manifest);

struct ParsedManifest {
  Manifest manifest;
  boost::json::object document;  // includes keys that this version does not know
  std::string self;
};
/// Checks the file's own digest, the version, and that all parts agree. `where` names the file in errors.
/// Throws Error{corrupt} on damage, Error{usage} for a format that is too new.
[[nodiscard]] ParsedManifest parse_manifest(std::string_view text, const std::string& where);

/// Appends the line with the digest to a JSON text that ends before its last member.
[[nodiscard]] std::string with_self_digest(std::string body);

}  // namespace argosy::checkpoint
