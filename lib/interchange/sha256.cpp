#include "interchange/sha256.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <vector>

#include "core/error.hpp"

namespace argosy::interchange {

void Sha256::Free::operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  ARGOSY_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "SHA-256");
}

void Sha256::update(Bytes bytes) {
  ARGOSY_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  ARGOSY_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1, "SHA-256");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_of(Bytes bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_of(const Files& files, const Path& path) {
  constexpr std::size_t piece_bytes = 4 << 20;  // a mapping would count as memory of the process
  std::vector<std::byte> buffer(piece_bytes);
  File file = files.open(path);
  Sha256 hash;
  while (const std::size_t size = file.read(buffer)) hash.update(Bytes{buffer}.first(size));
  return hash.hex();
}

}  // namespace argosy::interchange
