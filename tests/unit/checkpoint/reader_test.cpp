#include "checkpoint/shard_set.hpp"
#include "core/random.hpp"
#include "load_fixture.hpp"

namespace argosy::checkpoint {
namespace {

using test::refusal, test::says;

/// One committed checkpoint of step 5.
class ReaderTest : public testing::Test {
 protected:
  Path save(const test::Units& units, bool with_moments = true, bool ema = false) {
    test::TestContext context{os, test::world()};
    test::Toy toy{units, context.topology().layout(), 0, ema};
    return test::save_step(context, folder / "run", 5, toy.fill(1).states(with_moments));
  }
  static Path shard_of(const Path& directory) { return directory / shard_name(0, 1); }
  static void expect_damage(const Path& directory, const std::string& what) {
    SCOPED_TRACE(what);
    refusal(Fault::corrupt, [&] { Reader{Files::system(), directory}.verify(); });
  }

  Os os;
  test::TempFolder folder;
};

TEST_F(ReaderTest, TellsWhatWasSaved) {
  const Reader reader{Files::system(), save(test::tiny_units())};
  EXPECT_EQ(reader.step(), 5);
  EXPECT_TRUE(reader.has_optimizer_state());
  EXPECT_TRUE(reader.finite());
  EXPECT_EQ(reader.unit_names(), (Names{"embedding", "block.0", "head"}));
  EXPECT_EQ(reader.sections().metrics.at("loss").as_double(), 2.5);
  EXPECT_EQ(reader.sections().schedule.at("args").at("peak").as_double(), 1.0 / 3);
  EXPECT_EQ(reader.attachment("tokenizer.model"), test::toy_attachments()[0].content);
  EXPECT_EQ(reader.manifest().at("kind"), "temp");
  reader.verify();
}

/// Expects that parameters, whole and streamed in pieces, have the elements `wanted(name, index)`.
template <class Wanted>
void expect_weights(const Reader& reader, const Wanted& wanted) {
  WeightStream stream = reader.stream();
  for (std::size_t id = 0; id < reader.parameters().size(); ++id) {
    const std::string& name = reader.parameters()[id].name;
    const std::vector<float> whole = reader.read_parameter(name);
    std::vector<float> streamed(whole.size()), in_parts(whole.size());
    for (std::size_t at = 0; at < whole.size(); at += 77) {
      const std::size_t count = std::min<std::size_t>(77, whole.size() - at);
      stream.read(id, static_cast<std::int64_t>(at), std::span{streamed}.subspan(at, count));
      reader.read_elements(id, static_cast<std::int64_t>(at), std::span{in_parts}.subspan(at, count));
    }
    EXPECT_EQ(streamed, whole) << name;
    EXPECT_EQ(in_parts, whole) << name;
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_EQ(whole[i], wanted(name, static_cast<std::int64_t>(i))) << name << " " << i;
  }
  stream.finish();
}

/// Three ranks' weights in bf16, committed by hand; one NaN in the last shard if `spoiled`.
Path save_bf16(const Path& directory, bool spoiled) {
  const partition::Layout layout{{2, 1}};
  Manifest manifest = test::manifest_of(test::tiny_units(), layout);
  manifest.weights = DType::bf16;
  manifest.tensors = test::adamw_tensors(manifest.spaces.size(), false, false);
  std::vector<std::vector<std::uint16_t>> halves;
  test::commit_shards(Files::system(), directory, manifest, {}, [&](int rank) {
    test::Toy toy{test::tiny_units(), layout, rank};
    toy.fill(1);
    halves.clear();
    for (std::size_t unit = 0; unit < manifest.spaces.size(); ++unit) {
      auto& unit_halves = halves.emplace_back();
      for (const float value : toy.tensor(0, unit)) unit_halves.push_back(bf16_from_f32(value));
    }
    if (spoiled && rank == 2) halves[2].at(7) = 0x7fc0;
    std::vector<Bytes> bytes;
    for (const auto& unit : halves) bytes.push_back(std::as_bytes(std::span{unit}));
    return bytes;
  });
  return directory;
}

TEST_F(ReaderTest, GivesWeightsInBf16AsFloats) {
  const Reader reader{Files::system(), save_bf16(folder / "bf16", false)};
  EXPECT_TRUE(reader.verify().finite);
  const auto wanted = [](const std::string& name, std::int64_t i) {
    return f32_from_bf16(bf16_from_f32(test::element(name, 0, i, 1)));
  };
  expect_weights(reader, wanted);
  for (const int rank : {0, 1}) {  // of two ranks
    test::Toy got{test::tiny_units(), partition::Layout{{2}}, rank},
        same{test::tiny_units(), partition::Layout{{2}}, rank};
    same.fill(1);
    got.fill_all(9);
    reader.read_state(got.states(false), rank);
    for (std::size_t unit = 0; unit < 3; ++unit) {
      for (float& value : same.tensor(0, unit)) value = f32_from_bf16(bf16_from_f32(value));
      EXPECT_EQ(got.tensor(0, unit), same.tensor(0, unit)) << rank << " " << unit;
    }
  }
  const Reader spoiled{Files::system(), save_bf16(folder / "spoiled", true)};
  EXPECT_FALSE(spoiled.verify().finite);
  EXPECT_TRUE(spoiled.verify(0, 3).finite) << "the NaN is in the share of another";
}

TEST_F(ReaderTest, ReadsWholeParameters) {
  const Reader reader{Files::system(), save(test::tiny_units())};
  EXPECT_EQ(reader.parameters().size(), 7U);
  expect_weights(reader, [](const std::string& name, std::int64_t i) { return test::element(name, 0, i, 1); });
  EXPECT_EQ(reader.read_parameter("head/scale").size(), 1U);
  refusal(Fault::data, [&] { static_cast<void>(reader.read_parameter("nobody")); });
}

TEST_F(ReaderTest, FillsOtherUnitsThanWereSaved) {
  const Reader reader{Files::system(), save(test::tiny_units())};
  test::Units merged{{"all", {}}};
  for (const auto& [name, params] : test::tiny_units())
    merged[0].second.insert(merged[0].second.begin(), params.begin(), params.end());
  expect_state(reader, merged, {{3}}, 1);
}

TEST_F(ReaderTest, ReadsLargeUnitsBlockByBlock) {
  const Reader reader{Files::system(), save(test::large_units())};
  expect_state(reader, test::large_units(), {{3}}, 1);
}

TEST_F(ReaderTest, RefusesAnotherModel) {
  const Reader reader{Files::system(), save(test::tiny_units())};
  test::Units units = test::tiny_units();
  units[1].second[1].shape = {53, 19};
  test::Toy other{units, partition::Layout{}, 0};
  const std::string said = refusal(Fault::data, [&] { reader.read_state(other.states(), 0); });
  EXPECT_TRUE(says(said, "block.0/up of shape [53, 19], got [19, 53]"));
  units[1].second[1].name = "block.0/side";
  test::Toy unknown{units, partition::Layout{}, 0};
  refusal(Fault::data, [&] { reader.read_state(unknown.states(), 0); });
}

TEST_F(ReaderTest, WeightsAloneCannotBeResumedFrom) {
  const Reader reader{Files::system(), save(test::tiny_units(), false)};
  EXPECT_FALSE(reader.has_optimizer_state());
  test::Toy wanted{test::tiny_units(), partition::Layout{}, 0}, got{test::tiny_units(), partition::Layout{}, 0};
  refusal(Fault::data, [&] { reader.read_state(got.states(), 0); });
  reader.read_state(got.states(false), 0);
  EXPECT_EQ(got.tensor(0, 0), wanted.fill(1).tensor(0, 0));
  reader.verify();
}

TEST_F(ReaderTest, HoldsARunningMeanBesideTheWeights) {
  Reader reader{Files::system(), save(test::tiny_units(), true, true)};
  ASSERT_TRUE(reader.has_ema());
  expect_state(reader, test::tiny_units(), {{1}, {1, 2}}, 1, true);
  reader.use_ema();
  test::Toy got{test::tiny_units(), partition::Layout{}, 0}, wanted{test::tiny_units(), partition::Layout{}, 0, true};
  reader.read_state(got.states(), 0);
  wanted.fill(1);
  for (std::size_t unit = 0; unit < wanted.spaces().size(); ++unit) {
    EXPECT_EQ(got.tensor(0, unit), wanted.tensor(3, unit));
    EXPECT_EQ(got.tensor(2, unit), wanted.tensor(2, unit));
  }
  expect_weights(reader, [](const std::string& name, std::int64_t i) { return test::element(name, 3, i, 1); });
}

TEST_F(ReaderTest, WeightsAloneMayHaveTheirRunningMean) {
  Reader reader{Files::system(), save(test::tiny_units(), false, true)};
  EXPECT_FALSE(reader.has_optimizer_state());
  reader.use_ema();
  EXPECT_EQ(reader.read_parameter("head/scale").front(), test::element("head/scale", 3, 0, 1));
}

TEST_F(ReaderTest, ARunningMeanBeginsWithTheWeightsAndIsNotMadeUpForOthers) {
  Reader reader{Files::system(), save(test::tiny_units())};
  test::Toy got{test::tiny_units(), partition::Layout{}, 0, true};
  reader.read_state(got.fill_all(99).states(), 0);
  for (std::size_t unit = 0; unit < got.spaces().size(); ++unit) EXPECT_EQ(got.tensor(3, unit), got.tensor(0, unit));
  EXPECT_TRUE(says(refusal(Fault::data, [&] { reader.use_ema(); }), "optimizer.ema"));
}

/// What a rank of `layout` holds of units: of each parameter's numbers hashes of their names and places, of codes one
/// byte of these; something else without `filled`.
struct Own {
  Own(const Manifest& manifest, const partition::Layout& layout, int rank, bool filled = true) {
    spaces.reserve(manifest.spaces.size());
    for (std::size_t u = 0; u < manifest.spaces.size(); ++u) {
      const partition::FlatSpace& space = spaces.emplace_back(manifest.spaces[u].params(), layout);
      units.push_back({manifest.unit_names[u], &space, {}});
      for (const spec::StateTensor& tensor : manifest.tensors[u]) {
        bytes.push_back(numbers_of(tensor, space, rank, filled));
        units.back().tensors.push_back({tensor, bytes.back()});
      }
    }
  }
  /// From every element of the shard, those that the tensor is for: it must be what owned_parts() says.
  static std::vector<std::byte> numbers_of(const spec::StateTensor& tensor, const partition::FlatSpace& space, int rank,
                                           bool filled) {
    std::vector<float> of_elements(static_cast<std::size_t>(space.owned_size(rank)));
    for (const partition::Interval& i : partition::intervals_of(space, rank))
      for (std::int64_t e = i.begin; e < i.end; ++e)
        of_elements[static_cast<std::size_t>(i.local_offset + e - i.begin)] =
            test::element(space.params()[i.param].name + tensor.name, 0, e / tensor.block, 7);
    std::vector<std::byte> numbers;
    for (std::int64_t local = 0; const int slice : space.owned_slices(rank)) {
      for (std::int64_t at = space.slice_begin(slice), end = at + space.slice_size(); at < end;
           at += tensor.block, local += tensor.block) {
        const bool decays = at >= space.decay_begin();
        if (tensor.covers != spec::Covers::all && decays != (tensor.covers == spec::Covers::with_decay)) continue;
        const Bytes raw = std::as_bytes(std::span{of_elements}.subspan(static_cast<std::size_t>(local), 1));
        const Bytes number = tensor.dtype == DType::u8 ? raw.subspan(1, 1) : raw;
        numbers.insert(numbers.end(), number.begin(), number.end());
      }
    }
    if (!filled) std::ranges::fill(numbers, std::byte{99});
    return numbers;
  }
  std::vector<partition::FlatSpace> spaces;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<UnitState> units;
};

/// Commits what all ranks of a manifest own; ranks of other layouts must read what is theirs.
Reader committed_and_read(const Path& directory, const Manifest& manifest,
                          const std::vector<std::vector<int>>& layouts) {
  std::optional<Own> saved;
  test::commit_shards(Files::system(), directory, manifest, {}, [&](int rank) {
    saved.emplace(manifest, manifest.spaces.front().layout(), rank);
    return test::bytes_of(saved->units);
  });
  Reader reader{Files::system(), directory};
  EXPECT_TRUE(reader.verify().finite);
  for (const std::vector<int>& nodes : layouts) {
    const partition::Layout layout{nodes};
    for (int rank = 0; rank < layout.world(); ++rank) {
      const Own got{manifest, layout, rank, false}, wanted{manifest, layout, rank};
      reader.read_state(got.units, rank);
      EXPECT_EQ(got.bytes, wanted.bytes) << "rank " << rank << " of " << nodes.size() << " nodes";
    }
  }
  return reader;
}

TEST_F(ReaderTest, AnOptimizersTensorsOfOtherShapesAreUnitsOfTheirOwn) {
  // A matrix whose second moments are kept as means of rows, and its vector, which has the usual ones.
  Manifest manifest = test::manifest_of({{"matrix", {{"block/matrix", {37, 41}}}},
                                         {"norm", {{"block/norm", {41}, false}}},
                                         {"matrix.row_mean", {{"block/matrix/row_mean", {37}}}}},
                                        partition::Layout{{2, 1}});
  manifest.tensors = {{{"master"}}, {{"master"}, {"second_moment"}}, {{"row_mean"}}};
  const Reader reader = committed_and_read(folder / "factored", manifest, {{1}, {2}, {1, 2}});
  EXPECT_TRUE(reader.has_optimizer_state());
  EXPECT_EQ(reader.manifest().at("min_reader").at("minor"), 3);
  ASSERT_EQ(reader.parameters().size(), 2U) << "the model's";
  EXPECT_THROW((void)reader.read_parameter("block/matrix/row_mean"), Error);
  Own other{manifest, partition::Layout{}, 0};
  other.units.front().tensors.push_back({{"exp_avg"}, other.units.front().tensors.front().bytes});
  EXPECT_THROW(reader.read_state(other.units, 0), Error);
}

TEST_F(ReaderTest, CodesAndTheScalesOfTheirBlocksGoToAnyLayout) {
  const std::vector<spec::StateTensor> tensors{
      {"master"},
      {.name = "moment", .covers = spec::Covers::without_decay},
      {.name = "codes", .dtype = DType::u8, .covers = spec::Covers::with_decay},
      {.name = "scales", .covers = spec::Covers::with_decay, .block = 256}};
  Manifest manifest =
      test::manifest_of({{"block", {{"block/up", {41, 67}}, {"block/norm", {300}, false}, {"block/down", {700}}}},
                         {"head", {{"head/norm", {41}, false}}}},
                        partition::Layout{{2, 1}});
  manifest.tensors = {tensors, tensors};
  const Path directory = folder / "packed";
  const Reader reader = committed_and_read(directory, manifest, {{1}, {2}, {1, 2}, {1, 3}, {2, 2, 1}});
  EXPECT_EQ(reader.manifest().at("min_reader").at("minor"), 4);
  EXPECT_EQ(reader.tensors(0), tensors);
  // Wanted as what they are not.
  const partition::FlatSpace alone{manifest.spaces[0].params(), partition::Layout{}};
  for (const spec::StateTensor& other :
       {spec::StateTensor{"moment"}, spec::StateTensor{"codes"}, spec::StateTensor{.name = "scales", .block = 256}}) {
    std::vector<std::byte> bytes(size_of(other.dtype) *
                                 static_cast<std::size_t>(spec::owned_parts(alone, other)[0].size));
    const std::vector<UnitState> wanted{{"block", &alone, {{other, bytes}}}};
    EXPECT_TRUE(says(refusal(Fault::data, [&] { reader.read_state(wanted, 0); }), other.name));
  }
  // Forged: another type, another extent, other parameters.
  const auto expect_forged = [&](const char* dataset, const char* key, const boost::json::value& value) {
    test::edit_manifest(directory, [&](boost::json::object& document) {
      boost::json::object& entry = document["datasets"].as_object()[dataset].as_object();
      value.is_null() ? static_cast<void>(entry.erase(key)) : static_cast<void>(entry[key] = value);
    });
    const std::string said = refusal(Fault::corrupt, [&] {
      const Reader forged{Files::system(), directory};
      forged.verify();
    });
    EXPECT_TRUE(says(said, dataset)) << key << ": " << said;
    test::edit_manifest(
        directory, [&](boost::json::object& document) { document["datasets"] = reader.manifest().at("datasets"); });
  };
  expect_forged("unit/block/codes", "dtype", "f32");
  expect_forged("unit/block/scales", "dtype", "u8");
  expect_forged("unit/block/scales", "block", nullptr);
  expect_forged("unit/block/codes", "block", 256);
  expect_forged("unit/block/codes", "decay", nullptr);
  expect_forged("unit/block/moment", "decay", true);
}

TEST_F(ReaderTest, NoticesAFlippedBitInEachDataset) {
  const Path directory = save(test::large_units(), true, true);
  const ShardMap map = test::map_of(directory, 0);
  RandomStream random{3, 3};
  for (const ShardMap::Dataset& dataset : map.datasets) {
    const std::pair<std::uint64_t, std::uint64_t> places[] = {{dataset.offset, dataset.spec.size_bytes()},
                                                              {dataset.digest_offset, dataset.spec.blocks() * 16}};
    for (const auto& [offset, size_bytes] : places) {
      const std::uint64_t at = offset + random.below(size_bytes);
      const int bit = static_cast<int>(random.below(8));
      test::flip(shard_of(directory), at, bit);
      expect_damage(directory, dataset.spec.name);
      test::Toy toy{test::large_units(), partition::Layout{}, 0, true};
      SCOPED_TRACE(dataset.spec.name);
      refusal(Fault::corrupt, [&] { Reader(Files::system(), directory).read_state(toy.states(), 0); });
      test::flip(shard_of(directory), at, bit);
    }
  }
  Reader{Files::system(), directory}.verify();
}

TEST_F(ReaderTest, NoticesPayloadAndDigestChangedTogether) {
  const Path directory = save(test::tiny_units());
  const ShardMap::Dataset weight = test::map_of(directory, 0).datasets[0];
  test::flip(shard_of(directory), weight.offset + 4);
  File file = Files::system().update(shard_of(directory));
  std::vector<std::byte> block(weight.spec.size_bytes());
  file.read_at(block, weight.offset);
  const Digest digest = digest_of(block);
  file.write_at(std::as_bytes(std::span{&digest, 1}), weight.digest_offset);
  const Reader reader{Files::system(), directory};
  const auto read = [&] { static_cast<void>(reader.read_parameter("embedding/weight")); };
  EXPECT_TRUE(says(refusal(Fault::corrupt, read), "root digest"));
}

TEST_F(ReaderTest, NamesTheShardThatWasCutShortOrIsMissing) {
  const Path directory = save(test::tiny_units());
  const std::uint64_t size_bytes = Files::system().stat(shard_of(directory))->size_bytes;
  Files::system().update(shard_of(directory)).truncate(size_bytes - 1);
  const auto open = [&] { Reader{Files::system(), directory}; };
  EXPECT_TRUE(says(refusal(Fault::corrupt, open),
                   fmt::format("a file of {} bytes, got {} bytes", size_bytes, size_bytes - 1),
                   "shard-00000-of-00001.h5"));
  Files::system().remove(shard_of(directory));
  EXPECT_TRUE(says(refusal(Fault::corrupt, open), "no such file"));
}

TEST_F(ReaderTest, NoticesAZeroedPage) {
  const Path directory = save(test::tiny_units());
  const std::string content = Files::system().read_text(shard_of(directory));
  const std::string page(4096, '\0');
  for (std::size_t at = 0; at + page.size() <= content.size(); at += page.size()) {
    if (content.compare(at, page.size(), page) == 0) continue;
    Files::system().update(shard_of(directory)).write_at(as_bytes(std::string_view{page}), at);
    expect_damage(directory, fmt::format("page at {}", at));
    Files::system().update(shard_of(directory)).write_at(as_bytes(content.substr(at, page.size())), at);
  }
}

TEST_F(ReaderTest, NoticesAChangedTokenizer) {
  const Path directory = save(test::tiny_units());
  test::flip(directory / "tokenizer.model", 2);
  const Reader reader{Files::system(), directory};
  refusal(Fault::corrupt, [&] { static_cast<void>(reader.attachment("tokenizer.model")); });
  refusal(Fault::data, [&] { static_cast<void>(reader.attachment("vocab_map.json")); });
  refusal(Fault::corrupt, [&] { reader.verify(); });
}

TEST_F(ReaderTest, RefusesWhatIsNoCheckpoint) {
  refusal(Fault::data, [&] { Reader{Files::system(), folder.path()}; });
  refusal(Fault::data, [&] { Reader{Files::system(), folder / "nowhere"}; });
}

TEST_F(ReaderTest, StreamsInAnyOrder) {
  const Reader reader{Files::system(), save(test::large_units())};
  RandomStream random{7, 7};
  WeightStream ascending = reader.stream(), jumping = reader.stream();
  const auto check = [&](WeightStream& stream, std::size_t param, std::int64_t begin, std::size_t size) {
    std::vector<float> piece(size);
    stream.read(param, begin, piece);
    for (std::size_t i = 0; i < size; ++i)
      ASSERT_EQ(piece[i], test::element(reader.parameters()[param].name, 0, begin + static_cast<std::int64_t>(i), 1));
  };
  std::uint64_t size_bytes = 0;
  for (std::size_t param = 0; param < reader.parameters().size(); ++param) {
    std::int64_t numel = 1;
    for (const std::int64_t extent : reader.parameters()[param].shape) numel *= extent;
    for (std::int64_t at = 0; at < numel; at += 100'003)
      check(ascending, param, at, static_cast<std::size_t>(std::min<std::int64_t>(100'003, numel - at)));
    for (int i = 0; i < 5; ++i) {
      const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(numel)));
      check(jumping, param, begin, random.below(static_cast<std::uint64_t>(numel - begin)) + 1);
    }
  }
  ascending.finish();
  jumping.finish();
  for (const partition::FlatSpace& space : reader.spaces())
    size_bytes += static_cast<std::uint64_t>(space.padded_size()) * 4;
  EXPECT_EQ(ascending.bytes_read(), size_bytes) << "each byte once";
}

TEST_F(ReaderTest, StreamsNoticeDamageAnywhereInATouchedBlock) {
  const Path directory = save(test::large_units());
  test::flip(shard_of(directory), test::map_of(directory, 0).datasets[0].offset + block_bytes - 1);
  const Reader reader{Files::system(), directory};
  std::vector<float> piece(10);
  WeightStream stream = reader.stream();
  stream.read(1, 5000, piece);  // same block, far from the damage: seen at the end of the block at the latest
  refusal(Fault::corrupt, [&] { stream.finish(); });
}

}  // namespace
}  // namespace argosy::checkpoint
