#include "checkpoint/manifest.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <boost/json/parse.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "core/error.hpp"
#include "core/random.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"

namespace argosy::checkpoint {
namespace {

Manifest example(const partition::Layout& layout = partition::Layout{{2, 1}}) {
  Manifest manifest;
  manifest.run_uuid = "00112233445566778899aabbccddeeff";
  manifest.save_nonce = "0123456789abcdef";
  manifest.step = 12500;
  manifest.sections = test::toy_sections();
  for (const auto& [name, params] : test::tiny_units()) {
    manifest.unit_names.push_back(name);
    manifest.spaces.emplace_back(params, layout);
  }
  manifest.tensors = test::adamw_tensors(manifest.spaces.size());
  for (int rank = 0; rank < layout.world(); ++rank)
    manifest.shards.push_back({shard_name(rank, layout.world()), 1 << 17, digest_of(std::to_string(rank))});
  manifest.files.push_back({"tokenizer.model", 8, digest_of("x")});
  return manifest;
}

Fault fault_of(const std::string& text) {
  SCOPED_TRACE(text.substr(0, 200));
  return test::error_of([&] { static_cast<void>(parse_manifest(text, "MANIFEST.json")); }).fault();
}

TEST(Manifest, ReadsBackWhatWasWritten) {
  const Manifest manifest = example();
  const ParsedManifest parsed = parse_manifest(text_of(manifest), "MANIFEST.json");
  EXPECT_EQ(parsed.manifest.run_uuid, manifest.run_uuid);
  EXPECT_EQ(parsed.manifest.save_nonce, manifest.save_nonce);
  EXPECT_EQ(parsed.manifest.step, 12500);
  EXPECT_EQ(parsed.manifest.unit_names, manifest.unit_names);
  EXPECT_EQ(parsed.manifest.world(), 3);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(parsed.manifest.specs(rank), manifest.specs(rank));
  EXPECT_EQ(parsed.manifest.sections.model, manifest.sections.model);
  EXPECT_EQ(parsed.manifest.shards[2].root, manifest.shards[2].root);
  EXPECT_EQ(parsed.manifest.files[0].digest, manifest.files[0].digest);
  EXPECT_EQ(parsed.self.size(), 32U);
}

TEST(Manifest, WeightsInBf16AreForReadersThatKnowThem) {
  Manifest manifest = example();
  const auto min_reader = [&] {
    return parse_manifest(text_of(manifest), "").document.at("min_reader").at("minor").as_int64();
  };
  EXPECT_EQ(min_reader(), 0);
  manifest.tensors.back().push_back("low_rank");
  EXPECT_EQ(min_reader(), 3);
  manifest.tensors = test::adamw_tensors(manifest.spaces.size(), false, false);
  manifest.weights = DType::bf16;
  EXPECT_EQ(min_reader(), 1);
  const ParsedManifest parsed = parse_manifest(text_of(manifest), "");
  EXPECT_EQ(parsed.manifest.weights, DType::bf16);
  EXPECT_EQ(parsed.manifest.specs(0)[1].name, "unit/block.0/param");
  EXPECT_EQ(parsed.document.at("datasets").at("unit/block.0/param").at("dtype"), "bf16");
  const auto refuse = [&](const char* key, std::size_t index, const boost::json::value& value) {
    boost::json::object document = parsed.document;
    if (index == 0) document[key] = value;
    if (index > 0) document["params"].as_array()[index].as_object()[key] = value;
    EXPECT_EQ(fault_of(test::sealed(document)), Fault::corrupt) << key << index;
  };
  refuse("dtype", 3, "f32");
  refuse("complete", 0, true);
}

TEST(Manifest, ARunningMeanIsForReadersThatKnowIt) {
  Manifest manifest = example();
  for (Manifest::Shard& shard : manifest.shards) shard.size_bytes += 1 << 20;
  for (const bool complete : {true, false}) {
    manifest.tensors = test::adamw_tensors(manifest.spaces.size(), true, complete);
    const ParsedManifest parsed = parse_manifest(text_of(manifest), "");
    EXPECT_EQ(parsed.document.at("min_reader").at("minor"), 2);
    EXPECT_TRUE(parsed.manifest.has_mean());
    EXPECT_EQ(parsed.manifest.specs(0)[complete ? 3 : 1].name, "unit/embedding/ema");
  }
  manifest.weights = DType::bf16;  // which nobody trains
  EXPECT_EQ(fault_of(text_of(manifest)), Fault::corrupt);
}

TEST(Manifest, KeepsEveryBitOfFloats) {
  Manifest manifest = example();
  boost::json::array numbers{0.1, 1.0 / 3, -0.0, 5e-324, 1.7976931348623157e308};
  RandomStream random{1, 2};
  while (numbers.size() < 2000) {
    const auto number = std::bit_cast<double>(random.next_u64());
    if (std::isfinite(number)) numbers.push_back(number);
  }
  manifest.sections.best = {{"a/b~c", numbers},
                            {"inf", -std::numeric_limits<double>::infinity()},
                            {"nan", std::numeric_limits<double>::quiet_NaN()}};
  const Sections read = parse_manifest(text_of(manifest), "MANIFEST.json").manifest.sections;
  const auto& got = read.best.at("a/b~c").as_array();
  ASSERT_EQ(got.size(), numbers.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint64_t>(got[i].as_double()), std::bit_cast<std::uint64_t>(numbers[i].as_double()));
  EXPECT_TRUE(std::isnan(read.best.at("nan").as_double()));
  EXPECT_EQ(read.best.at("inf").as_double(), -std::numeric_limits<double>::infinity());
}

TEST(Manifest, RefusesEveryFlippedByte) {
  const std::string text = text_of(example());
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    EXPECT_EQ(fault_of(bad), Fault::corrupt) << "byte " << at;
  }
}

TEST(Manifest, RefusesEveryTruncation) {
  const std::string text = text_of(example());
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_EQ(fault_of(text.substr(0, size)), Fault::corrupt);
  EXPECT_EQ(fault_of(text + "\n"), Fault::corrupt);
}

TEST(Manifest, ReadsNewerMinorVersionsAndKeepsTheirKeys) {
  boost::json::object document = parse_manifest(text_of(example()), "").document;
  document["format_version"] = {{"major", format_major}, {"minor", 7}};
  document["new_key"] = 5;
  EXPECT_EQ(parse_manifest(test::sealed(document), "").document.at("new_key"), 5);
}

TEST(Manifest, RefusesWhatItIsTooOldFor) {
  boost::json::object document = parse_manifest(text_of(example()), "").document;
  document["min_reader"] = {{"major", format_major}, {"minor", format_minor + 1}};
  EXPECT_EQ(fault_of(test::sealed(document)), Fault::usage);
  document["format_version"] = {{"major", format_major + 1}, {"minor", 0}};
  EXPECT_EQ(fault_of(test::sealed(document)), Fault::usage);
}

TEST(Manifest, RefusesPartsThatContradictEachOther) {
  using Change = std::function<void(boost::json::object&)>;
  const std::pair<const char*, Change> changes[] = {
      {"fewer ranks", [](auto& o) { o["parallel"].as_object()["world"] = 2; }},
      {"other nodes",
       [](auto& o) {
         o["parallel"].as_object()["nodes"] = {1, 2};
       }},
      {"an empty node",
       [](auto& o) {
         o["parallel"].as_object()["nodes"] = {3, 0};
       }},
      {"more nodes than memory",
       [](auto& o) {
         auto& nodes = o["parallel"].as_object()["nodes"].as_array();
         nodes = {1 << 18};
         while (nodes.size() < (1 << 18)) nodes.push_back(1);
         o["parallel"].as_object()["world"] = (1 << 19) - 1;
       }},
      {"other owner", [](auto& o) { o["parallel"].as_object()["owner"].as_array()[0] = 1; }},
      {"a missing shard", [](auto& o) { o["shards"].as_array().pop_back(); }},
      {"another shard name", [](auto& o) { o["shards"].as_array()[0].as_object()["file"] = "../../etc/passwd"; }},
      {"a path as a file's name", [](auto& o) { o["files"].as_array()[0].as_object()["name"] = "../x"; }},
      {"a name twice", [](auto& o) { o["params"].as_array()[1].as_object()["name"] = "embedding/weight"; }},
      {"a shape that overflows",
       [](auto& o) {
         o["params"].as_array()[0].as_object()["shape"] = {1LL << 40, 1LL << 40};
       }},
      {"a negative extent",
       [](auto& o) {
         o["params"].as_array()[0].as_object()["shape"] = {-1, 19};
       }},
      {"another element type", [](auto& o) { o["params"].as_array()[0].as_object()["dtype"] = "bf16"; }},
      {"another offset",
       [](auto& o) {
         o["units"].as_array()[1].as_object()["params"].as_array()[1] = {2, 512};
       }},
      {"another slice", [](auto& o) { o["units"].as_array()[0].as_object()["slice"] = 1; }},
      {"a unit less", [](auto& o) { o["units"].as_array().pop_back(); }},
      {"a mistyped step", [](auto& o) { o["step"] = "12500"; }},
      {"no step", [](auto& o) { o.erase("step"); }},
      {"a bad digest", [](auto& o) { o["shards"].as_array()[0].as_object()["root_digest"] = "no"; }},
      {"other bits of a float", [](auto& o) { o["float_bits"].as_object()["/metrics/loss"] = "3ff0000000000000"; }},
      {"bits of Inf for a number", [](auto& o) { o["float_bits"].as_object()["/metrics/loss"] = "7ff0000000000000"; }},
      {"bits of a number for a word",
       [](auto& o) {
         o["metrics"].as_object()["loss"] = "inf";
         o["float_bits"].as_object()["/metrics/loss"] = "7ff8000000000000";
       }},
      {"bits of an integer", [](auto& o) { o["float_bits"].as_object()["/model/vocab_size"] = "4042800000000000"; }},
      {"a step without a name", [](auto& o) { o["step"] = 1'000'000'000'000'000'000; }},
      {"no owners", [](auto& o) { o["parallel"].as_object()["owner"].as_array().clear(); }},
      {"bits of nothing", [](auto& o) { o["float_bits"].as_object()["/nothing"] = "3ff0000000000000"; }},
      {"a section that is none", [](auto& o) { o["model"] = 1; }}};
  for (const auto& [what, change] : changes) {
    boost::json::object document = parse_manifest(text_of(example()), "").document;
    change(document);
    EXPECT_EQ(fault_of(test::sealed(document)), Fault::corrupt) << what;
  }
}

TEST(Manifest, RefusesMoreStateThanItsShardsHold) {
  Manifest manifest = example();
  for (Manifest::Shard& shard : manifest.shards) shard.size_bytes = 30'000;  // 102,108 bytes of state in all
  EXPECT_EQ(fault_of(text_of(manifest)), Fault::corrupt);
  for (Manifest::Shard& shard : manifest.shards) shard.size_bytes = 34'036;
  EXPECT_NO_THROW(static_cast<void>(parse_manifest(text_of(manifest), "")));
}

TEST(ShardName, UsesFoldersAboveFourThousandRanks) {
  EXPECT_EQ(shard_name(3, 16), "shard-00003-of-00016.h5");
  EXPECT_EQ(shard_name(4095, 4096), "shard-04095-of-04096.h5");
  EXPECT_EQ(shard_name(1023, 5000), "s01/shard-01023-of-05000.h5");
}

}  // namespace
}  // namespace argosy::checkpoint
