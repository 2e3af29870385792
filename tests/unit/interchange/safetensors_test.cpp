#include "interchange/safetensors.hpp"

#include <gmock/gmock.h>

#include <cstring>

#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::interchange {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SafetensorsFile : public testing::Test {
 protected:
  static std::string file_of(const std::string& header, std::size_t data_bytes, std::uint64_t claimed = 0) {
    const std::uint64_t size = claimed == 0 ? header.size() : claimed;
    std::string file(sizeof size, '\0');
    std::memcpy(file.data(), &size, sizeof size);
    file += header;
    for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
    return file;
  }
  void put(const std::string& name, const std::string& content) { files.write_atomically(folder / name, content); }
  [[nodiscard]] Safetensors opened() const { return {files, folder.path()}; }
  /// What is said of a single file.
  std::string refused(const std::string& header, std::size_t data_bytes, std::uint64_t claimed = 0) {
    return refused_file(file_of(header, data_bytes, claimed));
  }
  std::string refused_file(const std::string& content) {
    put("model.safetensors", content);
    return test::refusal(Fault::corrupt, [&] { (void)opened(); });
  }
  std::string refused_index(const std::string& index) {
    put("model.safetensors.index.json", index);
    return test::refusal(Fault::corrupt, [&] { (void)opened(); });
  }

  Files files = Files::system();
  test::TempFolder folder;
};

std::string entry(const std::string& name, const std::string& type, const std::string& shape, int begin, int end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, type, shape, begin, end);
}

TEST_F(SafetensorsFile, ReadsEveryFloatingTypeAndAnyPartOfATensor) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "F32", "2,1", 0, 8) + "," +
                             entry("none", "F32", "3,0", 8, 8) + "," + entry("b", "BF16", "3", 8, 14) + "," +
                             entry("c", "F16", "5", 14, 24) + "," + entry("scalar", "I64", "", 24, 32) + "}   ";
  std::string file = file_of(header, 32);
  const std::size_t data = 8 + header.size();
  const float a[] = {1.5F, -0x1p-140F};
  const std::uint16_t halves[] = {0x3fc0, 0xff80, 0x0001, 0x3c00, 0xc500, 0x0001, 0x7c00, 0x83ff};
  std::memcpy(file.data() + data, a, sizeof a);
  std::memcpy(file.data() + data + 8, halves, sizeof halves);
  put("model.safetensors", file);
  const Safetensors tensors = opened();
  EXPECT_EQ(tensors.tensors().size(), 5U);
  EXPECT_THAT(tensors.tensors().at("a").shape, ElementsAre(2, 1));
  EXPECT_EQ(tensors.tensors().at("scalar").elements(), 1);
  EXPECT_EQ(tensors.tensors().at("none").elements(), 0);
  std::vector<float> values(2);
  tensors.read("a", 0, values);
  EXPECT_THAT(values, ElementsAre(1.5F, -0x1p-140F));
  tensors.read("b", 1, values);
  EXPECT_THAT(values, ElementsAre(-std::numeric_limits<float>::infinity(), 0x1p-133F));
  values.resize(5);
  tensors.read("c", 0, values);
  EXPECT_THAT(values, ElementsAre(1.0F, -5.0F, 0x1p-24F, std::numeric_limits<float>::infinity(), -0x1.ff8p-15F));
  values.resize(1);
  EXPECT_THAT(test::refusal(Fault::data, [&] { tensors.read("scalar", 0, values); }), HasSubstr("I64"));
}

TEST_F(SafetensorsFile, RefusesEachRuleThatAHeaderBreaks) {
  const std::string sound = entry("a", "F32", "2", 0, 8);
  EXPECT_THAT(refused_file("short"), HasSubstr("5 bytes"));
  EXPECT_THAT(refused("{" + sound + "}", 8, 1ULL << 63), HasSubstr("9223372036854775808"));
  EXPECT_THAT(refused("{" + sound + "}", 8, 200'000'000), HasSubstr("200000000"));
  EXPECT_THAT(refused("{" + sound + "}", 0, 2000), HasSubstr("2000 bytes"));
  EXPECT_THAT(refused(" {" + sound + "}", 8), HasSubstr("begins with {"));
  EXPECT_THAT(refused("{" + sound, 8), HasSubstr("JSON"));
  EXPECT_THAT(refused("{" + sound + "," + sound + "}", 8), HasSubstr("repeated"));
  EXPECT_THAT(refused("{\"a\":" + std::string(5000, '['), 8), HasSubstr("JSON"));
  EXPECT_THAT(refused("{\"a\":7}", 0), HasSubstr("dtype, shape and data_offsets"));
  EXPECT_THAT(refused("{\"__metadata__\":{\"format\":7}}", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(refused("{" + entry("a", "F31", "2", 0, 8) + "}", 8), HasSubstr("F31"));
  EXPECT_THAT(refused("{" + entry("a", "F32", "-2", 0, 8) + "}", 8), HasSubstr("-2"));
  EXPECT_THAT(refused("{" + entry("a", "F32", "2.5", 0, 8) + "}", 8), HasSubstr("whole numbers"));
  EXPECT_THAT(refused("{" + entry("a", "F32", "4611686018427387904,4611686018427387904", 0, 8) + "}", 8),
              HasSubstr("64 bits"));
  EXPECT_THAT(refused("{" + entry("a", "F32", "3", 0, 8) + "}", 8), HasSubstr("12 bytes apart"));
  EXPECT_THAT(refused("{" + entry("a", "F32", "2", 8, 0) + "}", 8), HasSubstr("[8, 0]"));
  EXPECT_THAT(refused("{" + sound + "," + entry("b", "F32", "1", 4, 8) + "}", 8), HasSubstr("overlaps"));
  EXPECT_THAT(refused("{" + sound + "," + entry("b", "F32", "1", 12, 16) + "}", 16), HasSubstr("holes"));
  EXPECT_THAT(refused("{" + sound + "}", 7), HasSubstr("8 bytes of tensors"));
  EXPECT_THAT(refused("{" + sound + "}", 9), HasSubstr("8 bytes of tensors"));
}

TEST_F(SafetensorsFile, AnIndexMustListWhatItsFilesHold) {
  put("one.safetensors", file_of("{" + entry("a", "F32", "2", 0, 8) + "}", 8));
  put("two.safetensors", file_of("{" + entry("b", "F32", "1", 0, 4) + "}", 4));
  put("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_EQ(opened().tensors().at("b").file, 1U);
  EXPECT_THAT(refused_index(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})"), HasSubstr("\"b\""));
  EXPECT_THAT(refused_index(R"({"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})"), HasSubstr("\"c\""));
  EXPECT_THAT(refused_index(R"({"weight_map":{"a":"../one.safetensors"}})"), HasSubstr("of this folder"));
  EXPECT_THAT(refused_index(R"({"weight_map":{"a":"/etc/passwd"}})"), HasSubstr("of this folder"));
  EXPECT_THAT(refused_index(R"({"weight_map":{"a":7}})"), HasSubstr("of this folder"));
  EXPECT_THAT(refused_index(R"({"weight_map":{}})"), HasSubstr("at least one tensor"));
  EXPECT_THAT(refused_index(R"({})"), HasSubstr("weight_map"));
  put("two.safetensors", file_of("{" + entry("a", "F32", "1", 0, 4) + "}", 4));
  EXPECT_THAT(refused_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
              HasSubstr("no other file"));
  put("two.safetensors", file_of("{" + entry("b", "F32", "1", 0, 4) + "," + entry("c", "F32", "1", 4, 8) + "}", 8));
  EXPECT_THAT(refused_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"), HasSubstr("\"c\""));
}

TEST_F(SafetensorsFile, APickledFileIsNotRead) {
  const auto said = [&] { return test::refusal(Fault::data, [&] { (void)opened(); }); };
  EXPECT_THAT(said(), HasSubstr("neither"));
  put("pytorch_model.bin", "anything");
  EXPECT_THAT(said(), HasSubstr("run code"));
}

}  // namespace
}  // namespace argosy::interchange
