#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.hpp"

/// Builds one token shard in memory (FORMAT.md) and commits it. One thread.
namespace argosy::data {

class ShardWriter {
 public:
  /// id_width: 2 or 4 bytes; sides: 2 for pairs, 1 for a language model.
  ShardWriter(std::uint32_t id_width, std::uint32_t sides);

  /// Adds an example; ids end with EOS. `source` is empty for a language model.
  void add(std::span<const std::int32_t> source, std::span<const std::int32_t> target, bool starts_document);
  [[nodiscard]] std::uint64_t examples() const noexcept { return examples_; }

  /// The whole file. `note`: JSON that travels with the examples.
  [[nodiscard]] std::string bytes(const Digest& tokenizer, const Digest& recipe, std::string_view note = "{}") const;

 private:
  struct Side {
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint32_t> lengths;
    std::string ids;
    std::uint64_t count = 0;
  };
  void add(Side& side, std::span<const std::int32_t> ids) const;

  std::uint32_t id_width_, sides_;
  std::uint64_t examples_ = 0;
  std::string documents_;
  Side source_, target_;
};

/// Bytes an id takes for a vocabulary of `pieces`.
[[nodiscard]] constexpr std::uint32_t id_width_of(std::int64_t pieces) { return pieces <= 65536 ? 2 : 4; }

}  // namespace argosy::data
