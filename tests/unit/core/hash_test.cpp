#include "core/hash.hpp"

#include <gtest/gtest.h>

namespace argosy {
namespace {

TEST(Digest, EqualsXxhsum) {
  // `printf abc | xxhsum -H128`
  EXPECT_EQ(digest_of("abc").hex(), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(digest_of("").hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, HexIsReadBack) {
  const Digest digest = digest_of("x");
  EXPECT_EQ(Digest::from_hex(digest.hex()), digest);
  for (const std::string& text : {std::string("06b0"), std::string(32, 'g'), std::string(31, '0') + "/"})
    EXPECT_EQ(Digest::from_hex(text), std::nullopt) << text;
}

TEST(Hasher, EqualsTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 10000; ++i) text += static_cast<char>(i * 7);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, std::size_t{4096}, text.size()}) {
    Hasher hasher;
    for (std::size_t at = 0; at < text.size(); at += piece) hasher.update(std::string_view{text}.substr(at, piece));
    EXPECT_EQ(hasher.digest(), digest_of(text)) << piece;
  }
  EXPECT_EQ(Hasher{}.digest(), digest_of(""));
}

TEST(Hash64, DependsOnContentAndSeed) {
  EXPECT_EQ(hash64("abc"), 0x78af5f94892f3950ULL);  // `printf abc | xxhsum -H3`
  EXPECT_NE(hash64("abc"), hash64("abc", 1));
  EXPECT_NE(hash64("abc"), hash64("abd"));
}

}  // namespace
}  // namespace argosy
