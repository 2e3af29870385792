#include "decode/escapes.hpp"

#include <gtest/gtest.h>

#include "core/random.hpp"

namespace argosy::decode {
namespace {

TEST(Escapes, PutATextOfSeveralLinesIntoOne) {
  EXPECT_EQ(escaped("def f():\n\treturn '\\n'\r\n"), R"(def f():\n\treturn '\\n'\r\n)");
  EXPECT_EQ(unescaped(R"(a\nb\\n\d\)"), "a\nb\\n\\d\\");
}

TEST(Escapes, GiveEveryTextBack) {
  RandomStream random{1, 1};
  for (int i = 0; i < 1000; ++i) {
    std::string text;
    for (int k = 0; k < 12; ++k) text += "\n\r\t\\nrt a"[random.below(10)];
    EXPECT_EQ(unescaped(escaped(text)), text);
    EXPECT_EQ(escaped(text).find_first_of("\n\r\t"), std::string::npos);
  }
}

}  // namespace
}  // namespace argosy::decode
