#include <gmock/gmock.h>

#include <boost/json/parse.hpp>

#include "config/config.hpp"
#include "support/refusal.hpp"

namespace argosy::config {
namespace {

using test::refusal;
using testing::AllOf, testing::HasSubstr;

std::string refused_text(std::string_view text) {
  return refusal(Fault::config, [&] { (void)Document::parse(text, "a.json"); });
}
boost::json::value after(std::string_view text, std::initializer_list<const char*> assignments) {
  Document document = Document::parse(text, "a.json");
  for (const char* assignment : assignments) document.set(assignment);
  return document.root();
}
std::string refused_set(std::string_view assignment) {
  return refusal(Fault::usage,
                 [&] { (void)after(R"({"a": {"b": [1, 2]}, "s": "t"})", {std::string(assignment).c_str()}); });
}

TEST(Document, RemembersTheLineOfEachKeyAndElement) {
  const Document d =
      Document::parse("{\n\"a\": 1, // one\n/* two\nlines */ \"b\": {\"c\":\n [5,\n6, {\"x/y\": 1}]}}", "a.json");
  const std::pair<const char*, const char*> places[] = {{"/a", "a.json:2"},     {"/b", "a.json:4"},
                                                        {"/b/c", "a.json:4"},   {"/b/c/0", "a.json:5"},
                                                        {"/b/c/1", "a.json:6"}, {"/b/c/2/x~1y", "a.json:6"}};
  for (const auto& [pointer, place] : places) EXPECT_EQ(d.place(pointer), place) << pointer;
  EXPECT_EQ(d.place("/b/absent"), "a.json:4") << "an absent key is where its object is";
  EXPECT_EQ(d.place("/absent"), "a.json");
  EXPECT_EQ(d.root().at("b").at("c").at(1).to_number<int>(), 6);
}

TEST(Document, NamesFileAndLineOfASyntaxError) {
  EXPECT_THAT(refused_text("{\n\"a\": 1\n\"b\": 2}"), AllOf(HasSubstr("a.json:3: "), HasSubstr("near `\"b\": 2}`")));
  EXPECT_THAT(refused_text("{\"a\": 1,\n"), HasSubstr("incomplete"));
  EXPECT_THAT(refused_text(""), HasSubstr("incomplete"));
  EXPECT_THAT(refused_text("{}\n{}"), AllOf(HasSubstr("a.json:2"), HasSubstr("text after the end")));
  EXPECT_THAT(refused_text("{\"a\": \"open\n\"}"), HasSubstr("a.json:1"));
  EXPECT_THAT(refused_text("{\"a\": \"\xff\"}"), HasSubstr("a.json:1"));
  EXPECT_THAT(refused_text("{'a': 1}"), HasSubstr("a.json:1"));
  EXPECT_THAT(refused_text(std::string(10000, '[')), HasSubstr("nested too deeply"));
}

TEST(Document, RefusesADuplicateKey) {
  EXPECT_EQ(refused_text("{\"a\": {\"b\": 1,\n\"c\": 2,\n\"b\": 3}}"),
            "a.json:3: the key a.b is already in line 1; remove one of them");
  EXPECT_NO_THROW((void)Document::parse(R"({"a": {"b": 1}, "c": {"b": 1}, "l": [{"b": 1}, {"b": 2}]})", "a.json"));
}

TEST(Document, AllowsCommentsAndTrailingCommas) {
  EXPECT_EQ(Document::parse("// head\n{\"a\": [1, 2,], /* x */ \"b\": 1,}\n// tail", "a.json").root(),
            boost::json::parse(R"({"a": [1, 2], "b": 1})"));
}

TEST(Document, MissingFileIsAUsageError) {
  EXPECT_THAT(refusal(Fault::usage, [] { (void)read_source(Files::system(), "/nowhere/a.json"); }),
              HasSubstr("/nowhere/a.json does not exist; correct the path, or see configs/"));
}

TEST(DocumentSet, OverridesInOrder) {
  EXPECT_EQ(after(R"({"a": {"b": 1}})", {"a.b=2", "a.c=x y", "a.b=3", "n.e.w=true", "t=\"5\"", "e="}),
            boost::json::parse(R"({"a": {"b": 3, "c": "x y"}, "n": {"e": {"w": true}}, "t": "5", "e": ""})"));
  EXPECT_EQ(after(R"({"a": [{"b": 1}, 2]})", {"a.0.b=7", "a.1=[3]", "a.2=end"}),
            boost::json::parse(R"({"a": [{"b": 7}, [3], "end"]})"));
}

TEST(DocumentSet, IsThePlaceOfWhatItChanged) {
  Document d = Document::parse("{\"a\": {\"b\": 1,\n\"c\": 2}}", "a.json");
  d.set("a.b=2");
  EXPECT_EQ(d.place("/a/b"), "--set");
  EXPECT_EQ(d.place("/a/c"), "a.json:2");
  d.set("a={\"c\": 5}");
  EXPECT_EQ(d.place("/a/c"), "--set");
}

TEST(DocumentSet, RefusesBadPaths) {
  EXPECT_THAT(refused_set("a.b"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(refused_set("=1"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(refused_set("s=caf\xe9"), HasSubstr("expected text in UTF-8, got byte 0xe9"));
  EXPECT_THAT(refused_set("a..b=1"), HasSubstr("expected keys separated by single dots"));
  EXPECT_THAT(refused_set("a.b.5=1"), HasSubstr("expected an index of a.b from 0 to 2, got 5"));
  EXPECT_THAT(refused_set("a.b.x=1"), HasSubstr("expected an index of a.b from 0 to 2, got x"));
  EXPECT_THAT(refused_set("s.x=1"), HasSubstr("expected an object at s, got \"t\""));
}

TEST(TextOf, IsCanonical) {
  const auto value =
      boost::json::parse(R"({"b": 0.1, "a": [1, "x\n"], "c": 1e-08, "d": 3.0, "e": {}, "f": [{}], "g": 1e300})");
  EXPECT_EQ(text_of(value, false), R"({"a":[1,"x\n"],"b":0.1,"c":1e-08,"d":3,"e":{},"f":[{}],"g":1e+300})");
  EXPECT_EQ(text_of(boost::json::parse(R"({"b": {"c": 1}, "a": [1, 2], "d": [{"x": 1}]})")),
            "{\n  \"a\": [1,2],\n  \"b\": {\n    \"c\": 1\n  },\n  \"d\": [\n    {\n      \"x\": 1\n    }\n  ]\n}");
}

TEST(Period, ReadsCountsSuffixesAndUnits) {
  using Unit = Period::Unit;
  const std::pair<const char*, Period> periods[] = {{"500", {500, Unit::step}},       {"300ku", {300000, Unit::step}},
                                                    {"2M t", {2e6, Unit::tgt_token}}, {"1Gt", {1e9, Unit::tgt_token}},
                                                    {"1.5e", {1.5, Unit::epoch}},     {"0", {0, Unit::step}},
                                                    {"1.5k", {1500, Unit::step}}};
  for (const auto& [text, period] : periods) EXPECT_EQ(Period::parse(text), period) << text;
}

TEST(Period, RefusesEverythingElse) {
  for (const char* text : {"", "k", "5x", "-1", "1.5", "5 5", "1kk", "5ut", "inf", "nan", "0x10", "1e5", "u"})
    EXPECT_THROW((void)Period::parse(text), Error) << text;
}

TEST(Period, TextIsReadBack) {
  for (const char* text : {"500", "0", "2Mt", "1.5e", "300000", "17t", "1Gt", "2500kt", "3e"})
    EXPECT_EQ(Period::parse(text).text(), text);
}

}  // namespace
}  // namespace argosy::config
