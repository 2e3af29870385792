#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_file.hpp"
#include "core/hash.hpp"

/// MANIFEST.json: what a checkpoint is, as a value (FORMAT.md §3). The last line holds the digest of every byte before
/// it, and the manifest holds the digests of all shards and files, so one line vouches for the whole directory. Floats
/// of the sections come back bit for bit: their bits are stored beside the decimals.
namespace argosy::checkpoint {

inline constexpr std::string_view manifest_name = "MANIFEST.json";
inline constexpr std::uint64_t manifest_limit_bytes = 256ULL << 20;

struct Manifest {
  std::string run_uuid{}, save_nonce{};  // 32 and 16 hex digits
  Kind kind = Kind::temp;
  bool finite = true;          // no NaN or Inf
  DType weights = DType::f32;  // or bf16, without any other tensor
  std::int64_t step = 0;
  double wall_time_s = 0;
  Sections sections{};
  std::vector<std::string> unit_names{};
  std::vector<partition::FlatSpace> spaces{};  // by unit; at least one, all of one layout
  /// Names of what is stored of each unit, the weights first. Units without weights, whose parameters are an
  /// optimizer's, come last.
  std::vector<std::vector<std::string>> tensors{};
  struct Shard {
    std::string file;
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

  [[nodiscard]] int world() const noexcept { return spaces.front().layout().world(); }
  [[nodiscard]] ShardIdentity identity(int rank) const { return {run_uuid, save_nonce, step, rank, world()}; }
  [[nodiscard]] std::vector<DatasetSpec> specs(int rank) const {
    return specs_of(unit_names, spaces, tensors, weights, rank);
  }
  /// Units with weights.
  [[nodiscard]] std::size_t weight_units() const noexcept;
  [[nodiscard]] bool has_optimizer_state() const noexcept;
  [[nodiscard]] bool has_mean() const noexcept;
};

/// The file's text, self digest included.
[[nodiscard]] std::string text_of(const Manifest& manifest);

struct ParsedManifest {
  Manifest manifest;
  boost::json::object document;  // with keys this version does not know
  std::string self;
};
/// Checks the self digest, the version and that all parts agree. `where` names the file in errors.
/// Throws Error{corrupt} on damage, Error{usage} for a format that is too new.
[[nodiscard]] ParsedManifest parse_manifest(std::string_view text, const std::string& where);

/// Puts the digest line under a JSON text that ends before its last member.
[[nodiscard]] std::string with_self_digest(std::string body);

}  // namespace argosy::checkpoint
