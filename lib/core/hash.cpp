#include "core/hash.hpp"

#ifdef ARGOSY_XXH_DISPATCH
#include <xxh_x86dispatch.h>  // the same functions, by the processor's widest vectors
#else
#include <xxhash.h>
#endif

#include <cstring>
#include <new>

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

std::optional<std::uint8_t> nibble(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

}  // namespace

std::string Digest::hex() const {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::optional<Digest> Digest::from_hex(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    const auto high = nibble(hex[2 * i]), low = nibble(hex[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    digest.bytes[i] = static_cast<std::uint8_t>(*high << 4 | *low);
  }
  return digest;
}

Digest digest_of(Bytes bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

std::uint64_t hash64(Bytes bytes, std::uint64_t seed) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

struct Hasher::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  if (!state_->xxh) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh.get());
}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

Hasher& Hasher::update(Bytes bytes) {
  XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size());
  return *this;
}

Digest Hasher::digest() const { return canonical(XXH3_128bits_digest(state_->xxh.get())); }

}  // namespace argosy
