// Exports that are read back, with sound writes and with writes that the disk loses or changes without a word.

#include "interchange/verify.hpp"

#include <map>

#include "config/describe.hpp"
#include "interchange/source.hpp"
#include "support/caught.hpp"
#include "support/faulty_os.hpp"
#include "support/on_root.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"
#include "support/small_model.hpp"
#include "support/small_text.hpp"

namespace argosy::interchange {
namespace {

using test::world;

/// Stands in for a forward pass without LibTorch: depends on the configuration and on some of each parameter.
std::vector<model::Outputs> forward(const spec::ModelSpec& spec, const model::WeightSource& weights,
                                    std::span<const model::Example> examples) {
  std::vector<float> some;
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) {
      std::vector<float> begin(static_cast<std::size_t>(std::min<std::int64_t>(parameter.numel(), 8)));
      weights.read(parameter, 0, begin);
      some.insert(some.end(), begin.begin(), begin.end());
    }
  }
  const spec::Architecture& shape = spec.architecture;
  some.push_back(static_cast<float>(shape.norm_epsilon));
  some.push_back(static_cast<float>(shape.rope_theta));
  return {examples.size(), {some, static_cast<double>(shape.heads + shape.window.value_or(0))}};
}

/// Flips a bit in the middle of the n-th transfer to a file.
class FlippingOs final : public Os {
 public:
  explicit FlippingOs(std::optional<std::size_t> n = {}) : n_(n) {}
  [[nodiscard]] std::size_t writes() const noexcept { return writes_; }

  std::int64_t pwrite(int fd, const void* from, std::size_t size_bytes, std::int64_t offset) override {
    const std::string bytes = changed(from, size_bytes);
    return Os::pwrite(fd, bytes.data(), bytes.size(), offset);
  }
  std::int64_t write(int fd, const void* from, std::size_t size_bytes) override {
    const std::string bytes = changed(from, size_bytes);
    return Os::write(fd, bytes.data(), bytes.size());
  }

 private:
  std::string changed(const void* from, std::size_t size_bytes) {
    std::string bytes(static_cast<const char*>(from), size_bytes);
    if (writes_++ == n_ && !bytes.empty()) bytes[size_bytes / 2] = static_cast<char>(bytes[size_bytes / 2] ^ 4);
    return bytes;
  }
  const std::optional<std::size_t> n_;
  std::size_t writes_ = 0;
};

class Verify : public testing::TestWithParam<std::tuple<const char*, Quantization>> {
 protected:
  Verify() {
    spec::ModelConfig translation =
        test::model_config({.width = 8, .ff = 12, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
    translation.max_positions = 5;
    spec::ModelConfig language = translation;
    language.type = spec::ModelType::decoder;
    language.kv_heads = 1;
    language.window = 3;
    language.rope_theta = 500.25;
    language.encoder.layers.reset();
    sources_ = {save("translation", translation), save("language", language)};
  }

  Path save(const std::string& name, const spec::ModelConfig& config) {
    const bool pairs = config.type == spec::ModelType::encoder_decoder;
    test::Units units;
    for (const spec::Unit& unit : spec::ModelSpec(spec::resolve(config, 300)).units)
      units.emplace_back(unit.name, unit.flat());
    checkpoint::Sections sections = test::toy_sections();
    sections.model["config"] = config::to_json(config);
    test::Toy toy = test::own_toy(sound_, units);
    const data::Tokenizer& tokenizer =
        test::small_tokenizer(pairs ? spec::TokenLayout::marian : spec::TokenLayout::llama);
    checkpoint::Store store{sound_.get(), folder_ / name, {}};
    const auto saved = store.save(checkpoint::Kind::temp, 1, toy.fill(1).states(), sections,
                                  std::vector<checkpoint::Attachment>{{"tokenizer.model", tokenizer.model_bytes()}});
    EXPECT_TRUE(saved.committed) << saved.why_not;
    return saved.directory;
  }

  ExportReport exports(Os& os, const Path& source, const model::Forward& pass = forward) {
    test::TestContext context{os, world()};
    const model::StoredModel model = open_source(sound_.get(), source.string());
    const auto& [format, quantization] = GetParam();
    const ExportOptions options{.quantization = quantization, .max_shard_bytes = 6'000, .verify_with = pass};
    return format_named(format).write(context.get(), model, folder_ / "made/out", options);
  }

  /// The content of the folder; nullopt: there is none, and nothing else either.
  std::optional<std::map<std::string, std::string>> made() {
    world().barrier("it is over");
    std::optional<std::map<std::string, std::string>> found;
    const Files files = Files::system();
    if (files.exists(folder_ / "made")) {
      for (const std::string& name : files.list(folder_ / "made")) {
        EXPECT_EQ(name, "out");
        if (name != "out") continue;
        found.emplace();
        for (const std::string& file : files.list(folder_ / "made/out"))
          (*found)[file] = files.read_text(folder_ / "made/out" / file);
      }
    }
    world().barrier("looked");
    test::on_root([&] { Files::system().remove_tree(folder_ / "made"); });
    return found;
  }

  /// The rank whose writes go astray.
  static int last() { return world().size() - 1; }

  /// Exports once for every write of that rank (on several ranks: for some of them), with it lost or changed. Every
  /// such export must be refused as damage, or have the right bytes. Returns how many were not refused, and of how
  /// many.
  template <class Faulty>
  std::pair<int, int> unnoticed(std::size_t calls, const Faulty& faulty) {
    int count = 0, all = 0;
    Os sound;
    for (std::size_t n = 0; n < calls; n += static_cast<std::size_t>(world().size()), ++all) {
      const std::unique_ptr<Os> os = faulty(n);
      const auto error = test::caught([&] { (void)exports(world().rank() == last() ? *os : sound, sources_.front()); });
      EXPECT_TRUE(!error || error->fault() == Fault::corrupt) << error->what();
      const auto left = made();
      EXPECT_EQ(left.has_value(), !error) << "write " << n;
      EXPECT_TRUE(!left || same_weights(*left, *whole_)) << "write " << n;
      count += error ? 0 : 1;
    }
    return {count, all};
  }

  /// All files are equal; a manifest tells the time.
  static bool same_weights(std::map<std::string, std::string> a, std::map<std::string, std::string> b) {
    a.erase("MANIFEST.json");
    b.erase("MANIFEST.json");
    return a == b;
  }

  test::SharedFolder folder_;
  Os system_;
  test::TestContext sound_{system_, world()};
  std::vector<Path> sources_;
  std::optional<std::map<std::string, std::string>> whole_;
};

TEST_P(Verify, AcceptsWhatIsWrittenAndCountsTheTensors) {
  for (const Path& source : sources_) {
    Os os;
    const ExportReport report = exports(os, source);
    EXPECT_GE(report.verified.value_or(0), 9);
    const auto checked = made();
    ASSERT_TRUE(checked);
    EXPECT_EQ(exports(os, source, {}).verified, std::nullopt);
    EXPECT_TRUE(same_weights(*made(), *checked)) << "verification changes what is written";
  }
}

/// Formats whose every write is tried.
class VerifyDamage : public Verify {};

TEST_P(VerifyDamage, NoticesEveryBitThatTheDiskChanges) {
  FlippingOs watched;
  (void)exports(watched, sources_.front());
  whole_ = made();
  ASSERT_TRUE(whole_);
  const auto writes = std::stoull(world().broadcast(std::to_string(watched.writes()), last()));
  const auto [count, all] = unnoticed(writes, [](std::size_t n) { return std::make_unique<FlippingOs>(n); });
  EXPECT_LE(count, 3);  // later writes put the bytes right again
  EXPECT_GT(all, 0);
}

TEST_P(VerifyDamage, NoticesEveryWriteThatTheDiskLoses) {
  if (std::get<0>(GetParam()) == std::string_view{"argosy"}) return;  // tests/fault/checkpoint loses its writes
  test::FaultyOs watched;
  (void)exports(watched, sources_.front());
  whole_ = made();
  ASSERT_TRUE(whole_);
  const auto writes = std::stoull(world().broadcast(std::to_string(watched.count(test::Call::pwrite)), last()));
  const auto [count, all] = unnoticed(writes, [](std::size_t n) {
    auto os = std::make_unique<test::FaultyOs>();
    os->forget(test::Call::pwrite, n);
    return os;
  });
  EXPECT_LT(count, all / 2);  // zeros
}

TEST_P(Verify, NoticesThatTheModelReadBackComputesSomethingElse) {
  int calls = 0;
  const model::Forward wrong = [&](const spec::ModelSpec& spec, const model::WeightSource& weights,
                                   std::span<const model::Example> examples) {
    auto outputs = forward(spec, weights, examples);
    if (++calls == 2) outputs.back().hidden.back() += 1;
    return outputs;
  };
  Os os;
  const auto error = test::caught([&] { (void)exports(os, sources_.back(), wrong); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->fault(), Fault::corrupt);
  EXPECT_NE(error->facts().sentence.find("a forward pass on fixed ids (text 3"), std::string::npos) << error->what();
  EXPECT_FALSE(made());
}

std::string name_of(const testing::TestParamInfo<std::tuple<const char*, Quantization>>& each) {
  const auto [format, quantization] = each.param;
  return fmt::format("{}_{}", format, boost::describe::enum_to_string(quantization, "unknown"));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Verify,
    testing::Values(std::tuple{"ct2", Quantization::float32}, std::tuple{"ct2", Quantization::bfloat16},
                    std::tuple{"ct2", Quantization::float16}, std::tuple{"ct2", Quantization::int8},
                    std::tuple{"ct2", Quantization::int8_float16}, std::tuple{"ct2", Quantization::int8_bfloat16},
                    std::tuple{"ct2", Quantization::int16}, std::tuple{"hf", Quantization::float32},
                    std::tuple{"hf", Quantization::bfloat16}, std::tuple{"hf", Quantization::float16},
                    std::tuple{"argosy", Quantization::float32}),
    name_of);
INSTANTIATE_TEST_SUITE_P(Formats, VerifyDamage,
                         testing::Values(std::tuple{"ct2", Quantization::int8},
                                         std::tuple{"hf", Quantization::bfloat16},
                                         std::tuple{"argosy", Quantization::float32}),
                         name_of);

TEST(FixedExamples, AreLiveIdsThatFitTheModel) {
  spec::ModelConfig config =
      test::model_config({.width = 8, .ff = 12, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
  config.max_positions = 6;
  const auto examples = fixed_examples(spec::resolve(config, 300));
  ASSERT_EQ(examples.size(), 3U);
  for (const model::Example& example : examples) {
    EXPECT_LE(example.source.size(), 6U);
    EXPECT_LE(example.target.size(), 6U);
    EXPECT_EQ(example.source.back(), 0);
    for (const std::int32_t id : example.target) EXPECT_TRUE(id >= 0 && id < 300) << id;
  }
  EXPECT_EQ(examples[1].target.size(), 5U);
}

}  // namespace
}  // namespace argosy::interchange
