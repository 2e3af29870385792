// Exporting with every call of every rank failing in turn, or the last one that the system gets.

#include <map>

#include "config/describe.hpp"
#include "interchange/formats.hpp"
#include "interchange/source.hpp"
#include "spec/model_spec.hpp"
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
using Contents = std::map<std::string, std::string>;

class ExportFaults : public testing::TestWithParam<std::tuple<const char*, Quantization, std::size_t>> {
 protected:
  ExportFaults() {
    spec::ModelConfig config =
        test::model_config({.width = 8, .ff = 8, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
    config.max_positions = 5;
    test::Units units;
    for (const spec::Unit& unit : spec::ModelSpec(spec::resolve(config, 300)).units)
      units.emplace_back(unit.name, unit.flat());
    checkpoint::Sections sections = test::toy_sections();
    sections.model["config"] = config::to_json(config);
    test::Toy toy = test::own_toy(sound_, units);
    const std::vector<checkpoint::Attachment> attached{
        {"tokenizer.model", test::small_tokenizer(spec::TokenLayout::marian).model_bytes()}};
    checkpoint::Store store{sound_.get(), folder_ / "run", {}};
    const auto saved = store.save(checkpoint::Kind::temp, 1, toy.fill(1).states(), sections, attached);
    EXPECT_TRUE(saved.committed) << saved.why_not;
    checkpoint_ = saved.directory;
  }

  /// Whether it was refused, on all ranks alike.
  bool exports(Os& os) {
    test::TestContext context{os, world()};
    const std::optional<Error> error = test::caught([&] {
      const model::StoredModel source = open_source(context.get(), checkpoint_.string());
      const auto& [format, quantization, count] = GetParam();
      const ExportOptions options{.quantization = quantization, .max_shard_bytes = 4'000};  // two files where it counts
      (void)format_named(format).write(context.get(), source, folder_ / "made/out", options);
    });
    if (error) {
      EXPECT_EQ(exit_code(error->fault()), Exit::io) << error->what();
    }
    world().barrier("it is over");
    EXPECT_EQ(comm::any_of(world(), error.has_value()), error.has_value()) << "a rank goes on where another has failed";
    return error.has_value();
  }

  /// What is in the folder under its name; nullopt: there is none.
  std::optional<Contents> made() {
    std::optional<Contents> found;
    const Files files = Files::system();
    if (files.exists(folder_ / "made/out")) {
      found.emplace();
      for (const std::string& name : files.list(folder_ / "made/out"))
        (*found)[name] = files.read_text(folder_ / "made/out" / name);
    }
    world().barrier("looked");
    return found;
  }

  test::SharedFolder folder_;
  Os system_;
  test::TestContext sound_{system_, world()};
  Path checkpoint_;
};

TEST_P(ExportFaults, OnlyAWholeFolderHasItsNameWhateverCallFails) {
  test::FaultyOs watched;
  ASSERT_FALSE(exports(watched));
  const std::optional<Contents> whole = made();
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->size(), std::get<2>(GetParam()));
  for (int failing = 0; failing < world().size(); ++failing) {
    const auto calls = std::stoull(world().broadcast(std::to_string(watched.count()), failing));
    int refused = 0;
    for (std::size_t n = 0; n < calls; ++n) {
      for (const bool crashes : {false, true}) {
        test::on_root([&] { Files::system().remove_tree(folder_ / "made"); });
        test::FaultyOs os;
        if (world().rank() == failing) crashes ? os.crash(n) : os.fail(n, ENOSPC);
        const bool threw = exports(os);
        const std::optional<Contents> left = made();
        const std::string where =
            fmt::format("call {} of rank {}{}", n, failing, crashes ? ", and all later ones" : "");
        EXPECT_EQ(os.open_files(), 0U) << where;
        EXPECT_TRUE(!left || *left == *whole) << where;
        EXPECT_TRUE(left || threw) << where;
        refused += threw ? 1 : 0;
      }
    }
    EXPECT_GT(refused, failing == 0 ? 60 : 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ExportFaults,
                         testing::Values(std::tuple{"ct2", Quantization::int8, 6U},
                                         std::tuple{"hf", Quantization::bfloat16, 11U}),
                         [](const auto& each) { return std::string(std::get<0>(each.param)); });

}  // namespace
}  // namespace argosy::interchange
