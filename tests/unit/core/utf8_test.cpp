#include "core/utf8.hpp"

#include <gtest/gtest.h>

namespace argosy {
namespace {

TEST(Utf8, DecodesTheBordersOfEachLength) {
  const auto expect = [](const char* text, int size_bytes, char32_t code) {
    const Utf8Character character = decode_utf8(text);
    EXPECT_EQ(character.size_bytes, size_bytes) << text;
    EXPECT_EQ(character.code, code) << text;
  };
  expect("\x7f", 1, 0x7F);
  expect("\u0080", 2, 0x80);
  expect("\u07ff", 2, 0x7FF);
  expect("\u0800", 3, 0x800);
  expect("\uffff", 3, 0xFFFF);
  expect("\U00010000", 4, 0x10000);
  expect("\U0010ffff", 4, 0x10FFFF);
}

TEST(Utf8, RefusesWhatRfc3629Refuses) {
  for (const char* text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\xc3("})
    EXPECT_EQ(decode_utf8(text).size_bytes, 0) << text;
}

TEST(Utf8, TellsACutCharacterFromAWrongOne) {
  for (const char* cut : {"\xf0\x9f\x98", "\xc3"}) EXPECT_TRUE(is_cut_utf8(cut)) << cut;
  for (const char* whole_or_wrong : {"\xc3(", "\xed\xa0", "\xc3\xa9", "a"})
    EXPECT_FALSE(is_cut_utf8(whole_or_wrong)) << whole_or_wrong;
}

TEST(Utf8, FindsAndReplacesEachInvalidByte) {
  EXPECT_EQ(first_invalid_utf8("caf\u00e9"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("caf\xe9!"), 3U);
  EXPECT_EQ(replace_invalid_utf8("a\xe2\x82z\u00e9\xff"), "a\uFFFD\uFFFDz\u00e9\uFFFD");
}

}  // namespace
}  // namespace argosy
