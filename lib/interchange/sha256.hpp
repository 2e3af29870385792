#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "core/bytes.hpp"
#include "core/file.hpp"

/// SHA-256 by OpenSSL, as hex digits: what SHA256SUMS lists. One thread.
namespace argosy::interchange {

class Sha256 {
 public:
  Sha256();
  void update(Bytes bytes);
  /// Of all bytes. Call once.
  [[nodiscard]] std::string hex();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const;
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

[[nodiscard]] std::string sha256_of(Bytes bytes);
[[nodiscard]] std::string sha256_of(const Files& files, const Path& path);  // of a file, piece by piece

}  // namespace argosy::interchange
