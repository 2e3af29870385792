#include "checkpoint/manifest.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "core/random.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"

namespace argosy::checkpoint {
namespace {

Manifest example(const partition::Layout& layout = partition::Layout{{2, 1}}) {
  Manifest manifest = test::manifest_of(test::tiny_units(), layout);
  manifest.step = 12500;
  for (int rank = 0; rank < layout.world(); ++rank)
    manifest.shards.push_back({1 << 17, digest_of(std::to_string(rank))});
  manifest.files.push_back({"tokenizer.model", 8, digest_of("x")});
  return manifest;
}

Fault fault_of(const std::string& text) {
  SCOPED_TRACE(text.substr(0, 200));
  return test::error_of([&] { static_cast<void>(parse_manifest(text, "MANIFEST.json")); }).fault();
}

/// Sets a member of the object, or an element of the array, to which the pointer `where` leads.
void put(boost::json::value& document, const char* where, const std::string& key, const boost::json::value& value) {
  boost::json::error_code none;
  boost::json::value& parent = *document.find_pointer(where, none);
  (parent.is_array() ? parent.as_array()[std::stoul(key)] : parent.as_object()[key]) = value;
}

/// Expects that a manifest is damage after `change`, its digest made right again.
void expect_damage(const boost::json::object& document, const char* what,
                   const std::function<void(boost::json::value&)>& change) {
  boost::json::value changed(document);
  change(changed);
  EXPECT_EQ(fault_of(test::sealed(changed.as_object())), Fault::corrupt) << what;
}

TEST(Manifest, ReadsBackWhatWasWritten) {
  const Manifest manifest = example();
  const ParsedManifest parsed = parse_manifest(text_of(manifest), "MANIFEST.json");
  EXPECT_EQ(text_of(parsed.manifest), text_of(manifest));
  EXPECT_EQ(std::tuple(parsed.manifest.step, parsed.manifest.world()), std::tuple(12500, 3));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(parsed.manifest.specs(rank), manifest.specs(rank));
  EXPECT_EQ(parsed.self.size(), 32U);
}

TEST(Manifest, WeightsInBf16AreForReadersThatKnowThem) {
  Manifest manifest = example();
  const auto min_reader = [&] {
    return parse_manifest(text_of(manifest), "").document.at("min_reader").at("minor").as_int64();
  };
  EXPECT_EQ(min_reader(), 0);
  manifest.tensors.back().push_back({"low_rank"});
  EXPECT_EQ(min_reader(), 3);
  manifest.tensors = test::adamw_tensors(manifest.spaces.size(), false, false);
  manifest.weights = DType::bf16;
  EXPECT_EQ(min_reader(), 1);
  const ParsedManifest parsed = parse_manifest(text_of(manifest), "");
  EXPECT_EQ(parsed.manifest.weights, DType::bf16);
  EXPECT_EQ(parsed.manifest.specs(0)[1].name, "unit/block.0/param");
  EXPECT_EQ(parsed.document.at("datasets").at("unit/block.0/param").at("dtype"), "bf16");
  expect_damage(parsed.document, "another type", [](auto& o) { put(o, "/params/3", "dtype", "f32"); });
  expect_damage(parsed.document, "complete", [](auto& o) { put(o, "", "complete", true); });
}

TEST(Manifest, TensorsInCodesAreForReadersThatKnowThem) {
  Manifest manifest = example();
  for (const spec::StateTensor& tensor : {spec::StateTensor{.name = "codes", .dtype = DType::u8},
                                          {.name = "scales", .block = 128},
                                          {.name = "halves", .dtype = DType::bf16},
                                          {.name = "small", .covers = spec::Covers::without_decay}}) {
    manifest.tensors = test::adamw_tensors(manifest.spaces.size());
    EXPECT_EQ(manifest.minor(), 3) << "as it was before";
    manifest.tensors.back().push_back(tensor);
    const ParsedManifest parsed = parse_manifest(text_of(manifest), "");
    EXPECT_EQ(parsed.document.at("format_version").at("minor"), 4);
    EXPECT_EQ(parsed.document.at("min_reader").at("minor"), 4);
    EXPECT_EQ(parsed.manifest.tensors, manifest.tensors);
    EXPECT_EQ(text_of(parsed.manifest), text_of(manifest));
  }
  const boost::json::object document = parse_manifest(text_of(manifest), "").document;
  const std::string of = "/datasets/unit~1" + manifest.unit_names.back() + "~1";
  expect_damage(document, "blocks", [&](auto& o) { put(o, (of + "small").c_str(), "block", 100); });
  expect_damage(document, "no blocks", [&](auto& o) { put(o, (of + "small").c_str(), "block", 0); });
  expect_damage(document, "decay", [&](auto& o) { put(o, (of + "small").c_str(), "decay", 1); });
  expect_damage(document, "type", [&](auto& o) { put(o, (of + "small").c_str(), "dtype", "u16"); });
  expect_damage(document, "weights by block", [&](auto& o) { put(o, (of + "master").c_str(), "block", 256); });
  expect_damage(document, "weights of some", [&](auto& o) { put(o, (of + "master").c_str(), "decay", true); });
}

TEST(Manifest, UnitsOfSomeRanksAreForReadersThatKnowThem) {
  const partition::Layout all{{2, 1}};
  Manifest manifest = example(all);
  const std::vector<int> members{0, 2};
  partition::FlatSpace& last = manifest.spaces.back();
  last = partition::FlatSpace{last.params(), all.part(members)}.among(members, 3);
  const ParsedManifest parsed = parse_manifest(text_of(manifest), "");
  EXPECT_EQ(parsed.document.at("min_reader").at("minor"), 5);
  EXPECT_EQ(text_of(parsed.manifest), text_of(manifest));
  EXPECT_EQ(parsed.manifest.spaces.back().owners(), last.owners());
  EXPECT_EQ(parsed.manifest.world(), 3);
  EXPECT_EQ(manifest.specs(1)[manifest.specs(1).size() - 6].elements, 0U) << "rank 1 has nothing of the last unit";
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(parsed.manifest.index(rank), manifest.index(rank));
  const std::string unit = "/units/" + std::to_string(manifest.spaces.size() - 1);
  for (const boost::json::array& ranks : {boost::json::array{}, {2, 0}, {0, 0}, {0, 3}, {-1, 0}, {0.5}, {"0"}, {0}})
    expect_damage(parsed.document, "ranks", [&](auto& o) { put(o, unit.c_str(), "ranks", ranks); });
  expect_damage(parsed.document, "the first unit", [&](auto& o) { put(o, "/units/0", "ranks", {0, 1, 2}); });
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
  const boost::json::object document = parse_manifest(text_of(example()), "").document;
  const struct {
    const char *what, *where, *key;
    boost::json::value value;
  } changes[] = {{"fewer ranks", "/parallel", "world", 2},
                 {"other nodes", "/parallel", "nodes", {1, 2}},
                 {"an empty node", "/parallel", "nodes", {3, 0}},
                 {"other owner", "/parallel/owner", "0", 1},
                 {"another shard name", "/shards/0", "file", "../../etc/passwd"},
                 {"a path as a file's name", "/files/0", "name", "../x"},
                 {"a name twice", "/params/1", "name", "embedding/weight"},
                 {"a shape that overflows", "/params/0", "shape", {1LL << 40, 1LL << 40}},
                 {"a negative extent", "/params/0", "shape", {-1, 19}},
                 {"another element type", "/params/0", "dtype", "bf16"},
                 {"another offset", "/units/1/params", "1", {2, 512}},
                 {"another slice", "/units/0", "slice", 1},
                 {"a mistyped step", "", "step", "12500"},
                 {"a bad digest", "/shards/0", "root_digest", "no"},
                 {"other bits of a float", "/float_bits", "/metrics/loss", "3ff0000000000000"},
                 {"bits of Inf for a number", "/float_bits", "/metrics/loss", "7ff0000000000000"},
                 {"bits of an integer", "/float_bits", "/model/vocab_size", "4042800000000000"},
                 {"a step without a name", "", "step", 1'000'000'000'000'000'000},
                 {"no owners", "/parallel", "owner", boost::json::array()},
                 {"bits of nothing", "/float_bits", "/nothing", "3ff0000000000000"},
                 {"a section that is none", "", "model", 1}};
  for (const auto& change : changes)
    expect_damage(document, change.what, [&](auto& o) { put(o, change.where, change.key, change.value); });
  expect_damage(document, "a missing shard", [](auto& o) { o.at("shards").as_array().pop_back(); });
  expect_damage(document, "a unit less", [](auto& o) { o.at("units").as_array().pop_back(); });
  expect_damage(document, "no step", [](auto& o) { o.as_object().erase("step"); });
  expect_damage(document, "bits of a number for a word", [](auto& o) {
    put(o, "/metrics", "loss", "inf");
    put(o, "/float_bits", "/metrics/loss", "7ff8000000000000");
  });
  expect_damage(document, "more nodes than memory", [](auto& o) {
    boost::json::array nodes(1 << 18, 1);
    nodes[0] = 1 << 18;
    put(o, "/parallel", "nodes", nodes);
    put(o, "/parallel", "world", (1 << 19) - 1);
  });
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
