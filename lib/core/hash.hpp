#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/bytes.hpp"

struct XXH3_state_s;

/// XXH3: 128-bit digests for content, 64-bit hashes for keys. Digests are the canonical (big-endian) bytes, so hex and
/// file formats agree on every machine. Not cryptographic: detects accidents, not forgery.
namespace argosy {

struct Digest {
  std::array<std::uint8_t, 16> bytes{};
  [[nodiscard]] std::string hex() const;
  [[nodiscard]] static std::optional<Digest> from_hex(std::string_view hex);
  auto operator<=>(const Digest&) const = default;
};

[[nodiscard]] Digest digest_of(Bytes bytes);
[[nodiscard]] inline Digest digest_of(std::string_view text) { return digest_of(as_bytes(text)); }
[[nodiscard]] std::uint64_t hash64(Bytes bytes, std::uint64_t seed = 0);
[[nodiscard]] inline std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0) {
  return hash64(as_bytes(text), seed);
}

/// Digest of a stream of pieces; equals digest_of() of their concatenation.
class Hasher {
 public:
  Hasher();
  Hasher& update(Bytes bytes);
  Hasher& update(std::string_view text) { return update(as_bytes(text)); }
  [[nodiscard]] Digest digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace argosy
