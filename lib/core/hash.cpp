#include "core/hash.hpp"

#include <fmt/ranges.h>

#ifdef ARGOSY_XXH_DISPATCH
#include <xxh_x86dispatch.h>  // the same functions, by the processor's widest vectors
#else
#include <xxhash.h>
#endif

#include <charconv>
#include <cstring>
#include <new>

#include "core/file_name.hpp"

namespace argosy {
namespace {

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest digest;
  static_assert(sizeof bytes.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), bytes.digest, sizeof bytes.digest);
  return digest;
}

}  // namespace

std::string Digest::hex() const { return fmt::format("{:02x}", fmt::join(bytes, "")); }

std::optional<Digest> Digest::from_hex(std::string_view hex) {
  Digest digest;
  if (!is_hex(hex, 2 * digest.bytes.size())) return std::nullopt;
  const char* digits = hex.data();
  for (std::uint8_t& byte : digest.bytes) {
    std::from_chars(digits, digits + 2, byte, 16);
    digits += 2;
  }
  return digest;
}

Digest digest_of(Bytes bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

std::uint64_t hash64(Bytes bytes, std::uint64_t seed) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

void Hasher::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hasher::Hasher() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

Hasher& Hasher::update(Bytes bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  return *this;
}

Digest Hasher::digest() const { return canonical(XXH3_128bits_digest(state_.get())); }

}  // namespace argosy
