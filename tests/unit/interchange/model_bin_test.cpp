#include "interchange/model_bin.hpp"

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "support/checkpoints.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::interchange {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::IsNull;

/// Puts bytes together as the format has them.
struct Raw {
  std::string bytes;

  template <class T>
  Raw& number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Raw& u8(int value) { return number(narrow<std::uint8_t>(value)); }
  Raw& u32(std::uint32_t value) { return number(value); }
  Raw& text(const std::string& value) {
    number(narrow<std::uint16_t>(value.size() + 1));
    bytes.append(value).push_back('\0');
    return *this;
  }
  Raw& variable(const std::string& name, const std::vector<std::uint32_t>& shape, int type, const std::string& values,
                std::optional<std::uint32_t> said = {}) {
    text(name).u8(narrow<int>(shape.size()));
    for (const std::uint32_t extent : shape) u32(extent);
    u8(type).u32(said.value_or(narrow<std::uint32_t>(values.size())));
    bytes += values;
    return *this;
  }
};

/// Version, specification, revision, number of variables.
Raw head(std::uint32_t variables, std::uint32_t version = 6) {
  return Raw{}.u32(version).text("TransformerSpec").u32(7).u32(variables);
}

template <class T>
std::string values(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

class ModelBinReader : public testing::Test {
 protected:
  ModelBinFile opened(const Raw& raw) {
    files.write_atomically(folder / "model.bin", raw.bytes);
    return {files, folder / "model.bin"};
  }
  std::string refused(const Raw& raw, Fault fault = Fault::corrupt) {
    return test::refusal(fault, [&] { (void)opened(raw); });
  }
  static std::vector<float> floats(const ModelBinFile& file, std::string_view name, std::int64_t begin,
                                   std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count));
    file.read(*file.find(name), begin, out);
    return out;
  }

  Files files = Files::system();
  test::TempFolder folder;
};

TEST_F(ModelBinReader, ReadsEveryTypeAnyPartAndAliases) {
  Raw raw = head(7);
  raw.variable("f32", {2, 2}, 0, values<float>({1.5F, -2, 3, 4}));
  raw.variable("i8", {3}, 1, values<std::int8_t>({-128, 0, 127}));
  raw.variable("i16", {}, 2, values<std::int16_t>({-300}));
  raw.variable("i32", {1}, 3, values<std::int32_t>({70'000}));
  raw.variable("f16", {2}, 4, values<std::uint16_t>({0x3c00, 0xc000}));
  raw.variable("bf16", {2}, 5, values<std::uint16_t>({0x3fc0, 0xff80}));
  raw.variable("none", {4, 0}, 0, "");
  raw.u32(2).text("also").text("f32").text("again").text("also");
  const ModelBinFile file = opened(raw);
  EXPECT_EQ(file.spec(), "TransformerSpec");
  EXPECT_EQ(file.revision(), 7U);
  EXPECT_EQ(file.variables().size(), 7U);
  EXPECT_THAT(file.variables().at("f32").shape, ElementsAre(2, 2));
  EXPECT_THAT(floats(file, "f32", 1, 2), ElementsAre(-2, 3));
  EXPECT_THAT(floats(file, "also", 0, 4), ElementsAre(1.5F, -2, 3, 4));
  EXPECT_EQ(file.aliases().at("again"), "f32");
  EXPECT_THAT(floats(file, "i8", 0, 3), ElementsAre(-128, 0, 127));
  EXPECT_THAT(floats(file, "i16", 0, 1), ElementsAre(-300));
  EXPECT_THAT(floats(file, "i32", 0, 1), ElementsAre(70'000));
  EXPECT_THAT(floats(file, "f16", 0, 2), ElementsAre(1, -2));
  EXPECT_THAT(floats(file, "bf16", 0, 1), ElementsAre(1.5F));
  EXPECT_THAT(floats(file, "none", 0, 0), ElementsAre());
  EXPECT_THAT(file.find("absent"), IsNull());
  EXPECT_EQ(file.bytes(*file.find("i16")).size(), 2U);
}

TEST_F(ModelBinReader, ReadsWhatTheWriterWrites) {
  Os os;
  test::TestContext context{os, test::world()};
  const auto bytes = [](std::size_t count) {
    return [count](std::int64_t first, MutableBytes to) {
      EXPECT_LE(static_cast<std::size_t>(first) + to.size(), count);
      std::ranges::fill(to, std::byte{7});
    };
  };
  ModelBin model{"TransformerDecoderSpec", 8, {}, {{"c", "a"}}};
  model.variables.push_back({"b", DType::i8, {}, bytes(1)});
  model.variables.push_back({"a", DType::bf16, {70'000, 3}, bytes(420'000)});  // longer than what is read at once
  write_model_bin(context.get().world, files, folder / "model.bin", model);
  const ModelBinFile file{files, folder / "model.bin"};
  EXPECT_EQ(file.spec(), "TransformerDecoderSpec");
  EXPECT_EQ(file.revision(), 8U);
  EXPECT_EQ(file.bytes(*file.find("c")), model.variables[1].bytes());
  EXPECT_EQ(file.bytes(*file.find("b")), model.variables[0].bytes());
}

TEST_F(ModelBinReader, ReadsOldVersions) {
  Raw first = Raw{}.u32(1).u32(1).text("a").u8(1).u32(2).u8(2).u32(2).number(std::int16_t{5}).number(std::int16_t{6});
  ModelBinFile file = opened(first);
  EXPECT_EQ(file.spec(), "");
  EXPECT_EQ(file.revision(), 1U);
  EXPECT_THAT(floats(file, "a", 0, 2), ElementsAre(5, 6));
  Raw third = head(1, 3);
  third.text("a").u8(0).u8(4).u32(1).number(2.5F).u32(0);
  file = opened(third);
  EXPECT_THAT(floats(file, "a", 0, 1), ElementsAre(2.5F));
  Raw none = head(1, 3);
  EXPECT_THAT(refused(none.text("a").u8(0).u8(8).u32(1).number(2.5).u32(0)),
              HasSubstr("expected a type of the format, got type 8"));
}

TEST_F(ModelBinReader, RefusesOtherVersions) {
  EXPECT_THAT(refused(head(0, 7).u32(0), Fault::usage), HasSubstr("version 7"));
  EXPECT_THAT(refused(head(0, 0).u32(0)), HasSubstr("expected 1 to 6, got 0"));
  EXPECT_THAT(refused(Raw{"PK"}), HasSubstr("version: expected 4 bytes at byte 0, got 2"));
  EXPECT_EQ(test::error_of([&] { (void)ModelBinFile(files, folder / "absent"); }).fault(), Fault::data);
}

TEST_F(ModelBinReader, RefusesTextsThatDoNotEndWhereTheySay) {
  Raw raw = Raw{}.u32(6).number(std::uint16_t{0});
  EXPECT_THAT(refused(raw), HasSubstr("expected a text with one NUL, at its end"));
  raw = Raw{}.u32(6).number(std::uint16_t{4});
  raw.bytes += "ab";
  EXPECT_THAT(refused(raw), HasSubstr("expected 4 bytes at byte 6, got 2"));
  raw.bytes += "cd";
  EXPECT_THAT(refused(raw), HasSubstr("at its end, got 4 other bytes"));
  raw.bytes.replace(raw.bytes.size() - 4, 4, std::string("a\0b\0", 4));
  EXPECT_THAT(refused(raw), HasSubstr("at its end, got 4 other bytes"));
}

TEST_F(ModelBinReader, RefusesShapesThatContradictTheBytes) {
  const std::string eight = values<float>({1, 2});
  EXPECT_THAT(refused(head(1).variable("a", {3}, 0, eight).u32(0)),
              HasSubstr(R"(variable "a": expected the bytes of shape [3] and type f32, got 8 bytes)"));
  EXPECT_THAT(refused(head(1).variable("a", {2}, 6, eight).u32(0)), HasSubstr("got type 6"));
  EXPECT_THAT(refused(head(1).variable("a", {2}, 0, eight, 12).u32(0)), HasSubstr("got 12 bytes"));
  EXPECT_THAT(refused(head(1).variable("a", std::vector<std::uint32_t>(9, 1), 0, eight).u32(0)),
              HasSubstr("expected at most 8 dimensions, got 9"));
  // 2^16 · 2^16 · 2^16 · 2^16 · 4 is 0 in 64 bits.
  const std::vector<std::uint32_t> wrapping(4, 1U << 16);
  EXPECT_THAT(refused(head(1).variable("a", wrapping, 0, "", 0).u32(0)), HasSubstr("got 0 bytes"));
  EXPECT_THAT(refused(head(1).variable("a", {~0U, ~0U, ~0U, 0}, 0, "", 0).u32(0)), HasSubstr("got 0 bytes"));
}

TEST_F(ModelBinReader, RefusesWhatTheFileDoesNotHoldBeforeItAllocates) {
  EXPECT_THAT(refused(head(~0U)), HasSubstr("name of a variable: expected 2 bytes"));
  EXPECT_THAT(refused(head(1).variable("a", {1U << 30}, 1, "", 1U << 30)),
              HasSubstr(R"(variable "a": expected 1073741824 bytes)"));
  EXPECT_THAT(refused(head(0).u32(~0U)), HasSubstr("name of an alias: expected 2 bytes"));
  EXPECT_THAT(refused(head(0)), HasSubstr("number of aliases: expected 4 bytes"));
}

TEST_F(ModelBinReader, RefusesNamesThatOccurTwice) {
  Raw two = head(2);
  two.variable("a", {}, 1, "x").variable("a", {}, 1, "x").u32(0);
  EXPECT_THAT(refused(two), HasSubstr(R"(variable "a": expected a name that occurs once)"));
  Raw shadow = head(1);
  shadow.variable("a", {}, 1, "x").u32(1).text("a").text("a");
  EXPECT_THAT(refused(shadow), HasSubstr(R"(alias "a": expected a name that occurs once)"));
  Raw twice = head(1);
  twice.variable("a", {}, 1, "x").u32(2).text("b").text("a").text("b").text("a");
  EXPECT_THAT(refused(twice), HasSubstr(R"(alias "b": expected a name that occurs once)"));
}

TEST_F(ModelBinReader, RefusesAnAliasOfNothingAndBytesAfterTheEnd) {
  Raw raw = head(1);
  raw.variable("a", {}, 1, "x").u32(1).text("b").text("c");
  EXPECT_THAT(refused(raw), HasSubstr(R"(alias "b": expected the name of a variable, got "c")"));
  Raw longer = head(0);
  longer.u32(0).bytes += "!";
  EXPECT_THAT(refused(longer), HasSubstr("end: expected nothing after the last alias, got 1 more bytes"));
}

TEST_F(ModelBinReader, RefusesEveryTruncation) {
  Raw raw = head(2);
  raw.variable("a", {2, 1}, 0, values<float>({1, 2})).variable("b", {}, 1, "x").u32(1).text("c").text("a");
  (void)opened(raw);
  for (std::size_t size = 0; size < raw.bytes.size(); ++size)
    EXPECT_THAT(refused(Raw{raw.bytes.substr(0, size)}), HasSubstr("get it again")) << size;
}

TEST_F(ModelBinReader, NoticesThatTheFileBecameShorterLater) {
  Raw raw = head(1);
  raw.variable("a", {2}, 0, values<float>({1, 2})).u32(0);
  const ModelBinFile file = opened(raw);
  files.write_atomically(folder / "model.bin", std::string_view{"short"});
  test::refusal(Fault::corrupt, [&] { (void)floats(file, "a", 0, 2); });
}

}  // namespace
}  // namespace argosy::interchange
