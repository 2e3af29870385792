#include "interchange/tensor_file.hpp"

#include <cstring>
#include <set>

#include "interchange/ct2_import.hpp"
#include "interchange/sha256.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {
namespace {

std::vector<std::byte> text(std::string_view text) {
  const Bytes bytes = argosy::as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

class TensorFileTest : public testing::Test {
 protected:
  /// A file with two texts around `tensor`.
  Written written(const Tensor& tensor) {
    TensorFile file{
        8 + tensor.size_bytes(), {{0, text("head")}, {4 + tensor.size_bytes(), text("tail")}}, {{4, &tensor}}};
    Written all;
    write_tensor_file(context.get().world, files, folder / "file", file, all);
    return all;
  }

  Files files = Files::system();
  test::TempFolder folder;
  Os os;
  test::TestContext context{os, test::world()};
};

TEST_F(TensorFileTest, WritesLongTensorsInPiecesOfWholeRowsAndKnowsTheirSum) {
  std::set<std::int64_t> begins;
  const Tensor tensor{"t", DType::i32, {7'000, 999}, [&](std::int64_t first, MutableBytes to) {
                        EXPECT_EQ(first % 999, 0);
                        EXPECT_EQ(to.size() % (999 * 4), 0U);
                        begins.insert(first);
                        for (std::size_t i = 0; i < to.size() / 4; ++i) {
                          const auto value = static_cast<std::int32_t>(first + static_cast<std::int64_t>(i));
                          std::memcpy(to.data() + 4 * i, &value, 4);
                        }
                      }};
  const Written all = written(tensor);
  EXPECT_GT(begins.size(), 3U);
  const std::string content = files.read_text(folder / "file");
  ASSERT_EQ(content.size(), all.bytes);
  ASSERT_EQ(content.size(), 8U + 4 * 7'000 * 999);
  EXPECT_EQ(content.substr(0, 4) + content.substr(content.size() - 4), "headtail");
  for (std::size_t i = 0; i < 7'000 * 999; ++i) {
    std::int32_t value = 0;
    std::memcpy(&value, content.data() + 4 + 4 * i, 4);
    ASSERT_EQ(value, static_cast<std::int32_t>(i));
  }
  EXPECT_EQ(all.sums.at("file"), sha256_of(argosy::as_bytes(content)));
}

TEST_F(TensorFileTest, WhatATensorThrowsEndsTheWriting) {
  const Tensor tensor{"t", DType::f32, {5'000'000}, [](std::int64_t first, MutableBytes) {
                        if (first > 0) throw_error(Fault::numeric, "t", "finite weights", "nan", "use others");
                      }};
  test::refusal(Fault::numeric, [&] { (void)written(tensor); });
}

class TensorPieces : public test::ExportFixture, public testing::WithParamInterface<Quantization> {};

TEST_P(TensorPieces, OfEveryVariableAreThoseOfTheWhole) {
  for (const spec::ModelConfig& config : {translation, language}) {
    const checkpoint::Reader reader{Files::system(), save(config)};
    const model::StoredModel model = model::stored_model(reader);
    for (const Tensor& tensor : ct2_variables(model, GetParam()).variables) {
      const std::vector<std::byte> whole = tensor.bytes();
      const auto row = static_cast<std::size_t>(tensor.row()) * size_of(tensor.dtype);
      std::vector<std::byte> together(whole.size());
      for (std::size_t at = 0, rows = 1; at < whole.size(); at += rows * row, ++rows) {
        const std::size_t size = std::min(rows * row, whole.size() - at);
        tensor.fill(static_cast<std::int64_t>(at / size_of(tensor.dtype)), MutableBytes{together}.subspan(at, size));
      }
      EXPECT_EQ(together, whole) << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TensorPieces,
                         testing::Values(Quantization::float32, Quantization::bfloat16, Quantization::float16,
                                         Quantization::int8, Quantization::int16));

}  // namespace
}  // namespace argosy::interchange
