#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "soup/ingredients.hpp"
#include "soup/soup.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::soup {
namespace {

class SoupRefusals : public testing::Test {
 protected:
  struct Variant {
    std::string run = "run";
    std::int64_t step = 1;
    test::Units units = test::tiny_units();
    checkpoint::Sections sections = test::toy_sections();
    std::vector<checkpoint::Attachment> attachments = test::toy_attachments();
    bool spoiled = false;
  };
  Path save(const Variant& v) {
    checkpoint::Store store{context.get(), folder / v.run, {}};
    test::Toy toy{v.units, context.topology().layout(), 0};
    toy.fill(static_cast<std::uint64_t>(v.step));
    if (v.spoiled) toy.tensor(0, 1)[700] = std::numeric_limits<float>::quiet_NaN();
    const auto report = store.save(checkpoint::Kind::temp, v.step, toy.states(), v.sections, v.attachments);
    EXPECT_TRUE(report.committed) << report.why_not;
    return report.directory;
  }
  /// Expects a refusal that says `words`, and nothing written.
  void refuse(Fault fault, const std::string& words) {
    config.output = (folder / "soup").string();
    const std::string said = test::refusal(fault, [&] { make_soup(context.get(), config); });
    EXPECT_NE(said.find(words), std::string::npos) << said;
    for (const std::string& name : Files::system().list(folder.path()))
      EXPECT_EQ(name.find("soup"), std::string::npos) << name;
  }
  void refuse_pair(const Variant& other, const std::string& words) {
    config.inputs = {save({}).string(), save(other).string()};
    refuse(Fault::data, words);
  }

  Os os;
  test::TempFolder folder;
  test::TestContext context{os, test::world()};
  SoupConfig config;
};

TEST_F(SoupRefusals, AcceptsWhatFitsTogether) {
  config.inputs = {save({}).string(), save({.step = 2}).string()};
  config.output = (folder / "soup/").string();
  const SoupReport report = make_soup(context.get(), config);
  EXPECT_EQ(report.output, folder / "soup");
  const checkpoint::Reader reader{Files::system(), report.output};
  reader.verify();
  EXPECT_EQ(reader.sections().soup.at("recipe"), "uniform");
  EXPECT_EQ(reader.sections().soup.at("inputs").as_array().size(), 2U);
  EXPECT_EQ(reader.sections().model, test::toy_sections().model);
  EXPECT_EQ(reader.run_uuid(), checkpoint::Reader(Files::system(), config.inputs[0]).run_uuid());
  EXPECT_EQ(figures(report).at("parameters").as_int64(), report.parameters);
  EXPECT_GT(report.bytes_read, 2 * 4 * static_cast<std::uint64_t>(report.parameters));
}

TEST_F(SoupRefusals, OtherParameterNames) {
  Variant other{.step = 2};
  other.units[1].second[1].name = "block.0/side";
  refuse_pair(other, "block.0/up");
}
TEST_F(SoupRefusals, MoreParameters) {
  Variant other{.step = 2};
  other.units[2].second.push_back({"head/more", {3}});
  refuse_pair(other, "also head/more");
}
TEST_F(SoupRefusals, OtherShapes) {
  Variant other{.step = 2};
  other.units[1].second[1].shape = {53, 19};
  refuse_pair(other, "block.0/up of shape [19, 53], got [53, 19]");
}
TEST_F(SoupRefusals, OtherElementTypes) {
  const Path second = save({.step = 2});
  test::edit_manifest(second, [](auto& o) { o["params"].as_array()[0].as_object()["dtype"] = "bf16"; });
  config.inputs = {save({}).string(), second.string()};
  refuse(Fault::corrupt, "f32 at /params/0/dtype");
}
TEST_F(SoupRefusals, AnotherModelConfiguration) {
  Variant other{.step = 2};
  other.sections.model["config_digest"] = "dead";
  refuse_pair(other, "model configuration");
}
TEST_F(SoupRefusals, AnotherTokenizer) {
  Variant other{.step = 2};
  other.sections.model["tokenizer_digest"] = "dead";
  refuse_pair(other, "tokenizer");
}
TEST_F(SoupRefusals, AnotherTokenizerFile) {
  Variant other{.step = 2};
  other.attachments[0].content = "others";
  refuse_pair(other, "the same tokenizer.model");
}
TEST_F(SoupRefusals, NoTokenizerFile) {
  Variant other{.step = 2};
  other.attachments.clear();
  refuse_pair(other, "the files tokenizer.model");
}
TEST_F(SoupRefusals, AnotherVocabularySize) {
  Variant other{.step = 2};
  other.sections.model["vocab_size"] = 38;
  refuse_pair(other, "vocabulary size (37), got 38");
}
TEST_F(SoupRefusals, OtherTiedWeights) {
  Variant other{.step = 2};
  other.sections.model["tied"] = boost::json::array{"embedding/weight"};
  refuse_pair(other, "set of tied weights");
}
TEST_F(SoupRefusals, DamagedWeights) {
  const Path second = save({.step = 2});
  config.inputs = {save({}).string(), second.string()};
  const Path shard = second / checkpoint::shard_name(0, 1);
  const std::uint64_t size_bytes = Files::system().stat(shard)->size_bytes;
  for (int i = 0; i < 3; ++i) {
    // Somewhere in the weights of `head`: found by their first value.
    const float first = test::element("head/scale", 0, 0, 2);
    const std::string text = Files::system().read_text(shard);
    const std::size_t at = text.find(std::string(reinterpret_cast<const char*>(&first), sizeof(first)));
    ASSERT_LT(at, size_bytes);
    test::flip(shard, at + 1030 + static_cast<std::uint64_t>(i) * 5000, i);
    refuse(Fault::corrupt, "unit/head/master");
    test::flip(shard, at + 1030 + static_cast<std::uint64_t>(i) * 5000, i);
  }
}
TEST_F(SoupRefusals, ValuesThatAreNotFinite) {
  refuse_pair({.step = 2, .spoiled = true}, "finite weights, got NaN or Inf");
}
TEST_F(SoupRefusals, ValuesThatTheManifestCallsFinite) {
  const Path second = save({.step = 2, .spoiled = true});
  test::edit_manifest(second, [](auto& o) { o["finite"] = true; });
  config.inputs = {save({}).string(), second.string()};
  refuse(Fault::data, "NaN or Inf in block.0/");
}
TEST_F(SoupRefusals, AnotherRunUnlessAllowed) {
  refuse_pair({.run = "other", .step = 2}, "--allow-cross-run");
  config.allow_cross_run = true;
  EXPECT_EQ(make_soup(context.get(), config).inputs, 2U);
}
TEST_F(SoupRefusals, OneIngredient) {
  config.inputs = {save({}).string()};
  refuse(Fault::usage, "at least two");
}
TEST_F(SoupRefusals, AnIngredientTwice) {
  const std::string first = save({}).string();
  Files::system().link_symbolically(first, folder / "link");
  config.inputs = {first, save({.step = 2}).string(), (folder / "link").string()};
  refuse(Fault::usage, "this one twice");
}
TEST_F(SoupRefusals, ASoupUnlessAllowed) {
  config.inputs = {save({}).string(), save({.step = 2}).string()};
  config.output = (folder / "first").string();
  static_cast<void>(make_soup(context.get(), config));
  config.inputs.push_back(config.output);
  refuse(Fault::data, "--allow-soup");
  config.allow_soup = true;
  EXPECT_EQ(make_soup(context.get(), config).inputs, 3U);
}
TEST_F(SoupRefusals, AnOutputThatExists) {
  config.inputs = {save({}).string(), save({.step = 2}).string()};
  config.output = (folder / "kept").string();
  Files::system().make_folders(folder / "kept");
  test::refusal(Fault::usage, [&] { make_soup(context.get(), config); });
  EXPECT_TRUE(Files::system().list(folder / "kept").empty());
}
TEST_F(SoupRefusals, WhatIsNoCheckpoint) {
  config.inputs = {save({}).string(), folder.path().string()};
  refuse(Fault::data, "a committed checkpoint");
}
TEST_F(SoupRefusals, ACheckpointCutShort) {
  const Path second = save({.step = 2});
  Files::system().update(second / checkpoint::shard_name(0, 1)).truncate(1000);
  config.inputs = {save({}).string(), second.string()};
  refuse(Fault::corrupt, "got 1000 bytes");
}

TEST_F(SoupRefusals, TableShowsStepsAndMetrics) {
  Variant second{.step = 2};
  second.sections.metrics = {{"loss", 1.25}, {"dev", {{"bleu", 31.5}}}};
  std::vector<checkpoint::Reader> readers;
  readers.emplace_back(Files::system(), save({}));
  readers.emplace_back(Files::system(), save(second));
  const std::vector<std::string> lines = table_of(readers);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("dev.bleu"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("2.5"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("31.5"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("1.25"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("000000002"), std::string::npos) << lines[2];
}

}  // namespace
}  // namespace argosy::soup
