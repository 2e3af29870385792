#include <gmock/gmock.h>

#include <boost/json/parse.hpp>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>

#include "core/staged.hpp"
#include "support/saved_toys.hpp"
#include "support/temp_folder.hpp"

/// apps/soup as people type it: a shell pattern, several ranks, the result line, the exit file.
namespace argosy::soup {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

/// Leaves out the variables of this test's own MPI job.
constexpr const char* without_mpi = "env -u PMI_FD -u PMI_RANK -u PMI_SIZE -u PMI_PORT -u PMI_ID";

class SoupTool : public testing::Test {
 protected:
  SoupTool() {
    test::save_three(context, folder / "ckpts", test::tiny_units(),
                     [](int step) { return test::toy_sections(3.0 - step / 100.0); });
  }
  /// Runs `soup words` in the folder on `ranks` ranks, outside of this test's MPI job; fills `output`; returns its exit
  /// code.
  int run(int ranks, const std::string& words) {
    const std::string command =
        fmt::format("cd '{}' && {} ARGOSY_EXIT_FILE=exit {} -n {} '{}' {} > out 2>&1", folder.path().string(),
                    without_mpi, std::getenv("ARGOSY_MPIEXEC"), ranks, program.string(), words);
    static_cast<void>(std::system(command.c_str()));
    output = Files::system().read_text(folder / "out");
    return std::atoi(Files::system().read_text(folder / "exit").c_str());  // launchers lose exit codes
  }
  Os os;
  test::TestContext context{os, test::world()};
  test::TempFolder folder;
  Path program = Path{std::getenv("ARGOSY_BUILD_DIR")} / "apps/soup";
  std::string output;
};

TEST_F(SoupTool, AveragesWhatAPatternNames) {
  EXPECT_EQ(run(2, "ckpts/checkpoints/*"), 0) << output;
  EXPECT_THAT(output, HasSubstr("loss"));
  const std::string last = output.substr(output.rfind('\n', output.size() - 2) + 1);
  EXPECT_TRUE(last.starts_with("result {\"tool\":\"soup\",\"status\":\"ok\"")) << last;
  const checkpoint::Reader reader{Files::system(), folder / "soup"};
  reader.verify();
  EXPECT_EQ(reader.step(), 30);
  EXPECT_EQ(run(1, "ckpts/checkpoints/*"), 2) << "never overwritten: " << output;
  EXPECT_EQ(run(1, "--out second ckpts/checkpoints/000000010 ckpts/checkpoints/000000020"), 0) << output;
  EXPECT_EQ(run(1, "--out third soup second"), 3) << "soups are no inputs unless allowed: " << output;
  EXPECT_THAT(output, HasSubstr("--allow-soup"));
  EXPECT_EQ(run(1, "--out third --allow-soup soup second"), 0) << output;
}

TEST_F(SoupTool, TakesFoldersWhoseNamesAreNotUtf8) {
  std::filesystem::rename(folder / "ckpts", folder / "caf\xe9");
  EXPECT_EQ(run(2, "--out caf\xe9/soup caf\xe9/checkpoints/*"), 0) << output;
  const std::size_t last = output.rfind("\nresult ");
  EXPECT_EQ(boost::json::parse(output.substr(last + 8)).at("output"), "caf\uFFFD/soup");
  EXPECT_EQ(checkpoint::Reader(Files::system(), folder / "caf\xe9/soup").step(), 30);
}

TEST_F(SoupTool, EndsWithTheCodeOfTheFault) {
  EXPECT_EQ(run(2, "ckpts/checkpoints/000000010"), 2) << output;
  EXPECT_EQ(run(2, "ckpts/checkpoints/000000010 nowhere"), 3) << output;
  test::flip(folder / "ckpts/checkpoints/000000020/MANIFEST.json", 77);
  EXPECT_EQ(run(2, "ckpts/checkpoints/*"), 4) << output;
  EXPECT_THAT(output, HasSubstr("000000020"));
  EXPECT_THAT(output, HasSubstr("\"status\":\"failed\""));
  EXPECT_FALSE(Files::system().exists(folder / "soup"));
}

TEST_F(SoupTool, AveragesByRecipe) {
  const auto soup_of = [&](const std::string& out) {
    return checkpoint::Reader{Files::system(), folder / out}.sections().soup;
  };
  EXPECT_EQ(run(2, "--out weighted --recipe weighted --weights 1,2,1 ckpts/checkpoints/*"), 0) << output;
  EXPECT_EQ(soup_of("weighted").at("recipe"), "weighted");
  EXPECT_EQ(soup_of("weighted").at("weights"), (boost::json::array{0.25, 0.5, 0.25}));
  EXPECT_THAT(output, HasSubstr("\"recipe\":\"weighted\""));
  EXPECT_EQ(run(1, "--recipe weighted --weights 1,2,1 --no-normalize --out sum ckpts/checkpoints/*"), 0) << output;
  EXPECT_EQ(soup_of("sum").at("weights"), (boost::json::array{1.0, 2.0, 1.0}));
  EXPECT_EQ(run(1, "--recipe weighted --by loss --out by ckpts/checkpoints/*"), 0) << output;
  EXPECT_GT(soup_of("by").at("weights").as_array()[2].as_double(),
            soup_of("by").at("weights").as_array()[0].as_double());
  EXPECT_EQ(run(1, "--recipe last_k --last 2 --spacing 20 --out last ckpts/checkpoints/*"), 0) << output;
  EXPECT_EQ(soup_of("last").at("inputs").as_array()[0].at("step"), 10);
  EXPECT_EQ(soup_of("last").at("inputs").as_array()[1].at("step"), 30);
  EXPECT_EQ(run(2, "--recipe decay --decay one_minus_sqrt --out decay ckpts/checkpoints/*"), 0) << output;
  EXPECT_GT(soup_of("decay").at("weights").as_array()[0].as_double(), 0.5);
  std::set<std::string> nonces;
  for (const char* out : {"weighted", "sum", "by", "decay"}) {
    const checkpoint::Reader reader{Files::system(), folder / out};
    nonces.emplace(reader.manifest().at("save_nonce").as_string());
  }
  EXPECT_EQ(nonces.size(), 4U) << "no shard passes for one of another soup";
  EXPECT_EQ(run(2, "--recipe weighted --weights 1,2 --out not ckpts/checkpoints/*"), 2) << output;
  EXPECT_EQ(run(1, "--recipe best --out not ckpts/checkpoints/*"), 2) << output;
}

TEST_F(SoupTool, TakesWhatAShellPatternGives) {
  Files::system().write_atomically(folder / "ckpts/checkpoints/notes.txt", std::string_view{"the good ones"});
  EXPECT_EQ(run(2, "ckpts/checkpoints/*"), 0) << output;
  EXPECT_THAT(output, HasSubstr("ckpts/checkpoints/notes.txt is a file, not a checkpoint: skipped"));
  EXPECT_EQ(run(2, "--check ckpts/checkpoints/*"), 0) << output;
  EXPECT_EQ(run(1, "--out slashes ckpts/checkpoints/*/"), 0) << output;
  const checkpoint::Reader soup{Files::system(), folder / "slashes"};
  EXPECT_EQ(soup.sections().soup.at("inputs").at(0).at("path"), "ckpts/checkpoints/000000010");
  const auto refused = [&](int code, const std::string& words, const std::string& said) {
    EXPECT_EQ(run(2, "--out not " + words), code) << output;
    EXPECT_THAT(output, HasSubstr(said));
  };
  refused(2, "ckpts/checkpoints/* ckpts/latest", "ckpts/checkpoints/000000030 is given twice");
  refused(2, "ckpts/checkpoints/notes.txt ckpts/checkpoints/000000010", "at least two checkpoints, got 1");
  refused(3, "ckpts/checkpoints", "ckpts/checkpoints is not a checkpoint");
  refused(3, "nowhere/*", "nowhere/* does not exist");
  Files::system().rename(folder / "ckpts/checkpoints/000000030", folder / "ckpts/checkpoints/.tmp-000000030-1");
  refused(3, "ckpts/checkpoints/* ckpts/checkpoints/.tmp*", "one that was never committed");
  Files::system().rename(folder / "ckpts/checkpoints/.tmp-000000030-1", folder / "ckpts/checkpoints/.del-000000030-1");
  refused(3, "ckpts/checkpoints/* ckpts/checkpoints/.del*", "one that is being removed");
}

TEST_F(SoupTool, RunsAsTypedFromTheClone) {
  std::filesystem::create_directory_symlink(Path{std::getenv("ARGOSY_BUILD_DIR")} / "apps", folder / "apps");
  const std::string script = fmt::format(
      "cd '{}' && mkdir bin && printf '#!/bin/sh\\nexec {} \"$@\"\\n' >bin/mpirun && chmod +x bin/mpirun && "
      "{} PATH=\"$PWD/bin:$PATH\" sh -c 'mpirun apps/soup ckpts/checkpoints/*' >typed 2>&1",
      folder.path().string(), std::getenv("ARGOSY_MPIEXEC"), without_mpi);
  EXPECT_EQ(std::system(script.c_str()), 0) << Files::system().read_text(folder / "typed");
  EXPECT_EQ(checkpoint::Reader(Files::system(), folder / "soup").sections().soup.at("inputs").as_array().size(), 3U);
}

TEST_F(SoupTool, ChecksEveryByteAndGoesOnPastDamage) {
  EXPECT_EQ(run(1, "ckpts/checkpoints/*"), 0) << output;
  const auto verdicts = [&] {
    const std::size_t at = output.find("result {") + 7;
    return boost::json::parse(output.substr(at, output.find('\n', at) - at)).as_object();
  };
  EXPECT_EQ(run(2, "--check ckpts/checkpoints/* soup"), 0) << output;
  EXPECT_EQ(verdicts().at("status"), "ok");
  EXPECT_EQ(verdicts().at("checkpoints"), 4);
  EXPECT_EQ(verdicts().at("damaged"), 0);
  std::int64_t payload = 0;
  for (const auto& [name, params] : test::tiny_units())
    for (const auto& param : params) payload += param.numel() * 4;
  EXPECT_GT(verdicts().at("bytes").as_int64(), (3 * 3 + 1) * payload) << "weights and moments, and the soup";
  EXPECT_THAT(output, HasSubstr("soup    "));

  const Path damaged = folder / "ckpts/checkpoints/000000020";
  const std::string shard = checkpoint::shard_name(0, 1);
  const std::string text = Files::system().read_text(damaged / shard);
  const float moment = test::element("head/weight", 2, 77, 20);
  const std::size_t at = text.find(std::string(reinterpret_cast<const char*>(&moment), sizeof(moment)));
  ASSERT_NE(at, std::string::npos);
  test::flip(damaged / shard, at);
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(run(ranks, "--check ckpts/checkpoints/* nowhere"), 4) << output;
    EXPECT_EQ(verdicts().at("status"), "damaged");
    EXPECT_EQ(verdicts().at("checkpoints"), 4);
    EXPECT_EQ(verdicts().at("damaged"), 2);
    const boost::json::array list = verdicts().at("verdicts").as_array();
    EXPECT_EQ(list[0].at("verdict"), "whole");
    EXPECT_THAT(std::string(list[1].at("verdict").as_string()), HasSubstr("block 0 of unit/head/exp_avg_sq"));
    EXPECT_EQ(list[2].at("verdict"), "whole") << "it goes on";
    EXPECT_THAT(std::string(list[3].at("verdict").as_string()), HasSubstr("does not exist"));
  }
  test::flip(damaged / shard, at);
  test::flip(damaged / "tokenizer.model", 3);
  EXPECT_EQ(run(2, "--check ckpts/checkpoints/*"), 4) << output;
  EXPECT_THAT(output, HasSubstr("tokenizer.model does not match its digest in MANIFEST.json"));
  EXPECT_EQ(run(1, "--check --out elsewhere ckpts/checkpoints/*"), 2) << output;
}

TEST_F(SoupTool, CheckTellsOfValuesThatAreNotFinite) {
  checkpoint::Store store{context.get(), folder / "wild", {}};
  test::Toy toy = test::own_toy(context);
  toy.fill(1).tensor(1, 0)[5] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(store.save(checkpoint::Kind::export_, 40, toy.states(), test::toy_sections(), {}).committed);
  EXPECT_EQ(run(2, "--check wild/export/*"), 4) << output;
  EXPECT_THAT(output, HasSubstr("DAMAGED: it contains NaN or Inf"));
  test::edit_manifest(folder / "wild/export/000000040", [](auto& o) { o["finite"] = true; });
  EXPECT_EQ(run(1, "--check wild/export/*"), 4) << "whatever the manifest says: " << output;
  test::edit_manifest(folder / "ckpts/checkpoints/000000010", [](auto& o) { o["finite"] = false; });
  EXPECT_EQ(run(1, "--check ckpts/checkpoints/*"), 4) << "a soup would refuse it: " << output;
}

/// Folders of soups in the making.
int stagings(const Path& folder) {
  int count = 0;
  for (const std::string& name : Files::system().list(folder)) count += name.starts_with(".tmp-") ? 1 : 0;
  return count;
}

TEST_F(SoupTool, SweepsWhatKilledSoupsHaveLeftAndNothingElse) {
  Owner dead = Owner::of_this_process(Files::system(), Clock{});
  const Path alive = folder / (".tmp-soup-" + owned_nonce(dead));
  dead.start_time = "1";  // a process that has this number no more
  const Path left = folder / (".tmp-soup.v1-" + owned_nonce(dead));
  dead.host += "-elsewhere";
  const Path elsewhere = folder / (".tmp-soup-" + owned_nonce(dead));
  for (const Path& path : {alive, left, elsewhere, folder / ".tmp-mine"}) {
    Files::system().make_folder(path);
    Files::system().write_atomically(path / "00000-of-00001.h5", std::string_view{"half"});
  }
  EXPECT_EQ(run(2, "ckpts/checkpoints/*"), 0) << output;
  EXPECT_THAT(output, HasSubstr("removed ./" + left.filename().string() + ", left by a job that was killed"));
  EXPECT_FALSE(Files::system().exists(left));
  for (const Path& path : {alive, elsewhere, folder / ".tmp-mine"}) EXPECT_TRUE(Files::system().exists(path)) << path;
  EXPECT_EQ(stagings(folder.path()), 3);
}

TEST_F(SoupTool, AKilledOneIsSweptByTheNext) {
  // Stops where its folder has appeared, and is killed there with all its ranks.
  const std::string script = fmt::format(
      "cd '{}' && ({} '{}/apps/soup' ckpts/checkpoints/* 2>log & soup=$!; "
      "while [ -z \"$(ls -d .tmp-soup-* 2>/dev/null)\" ] && kill -0 $soup; do :; done; "
      "kill -KILL $soup; wait $soup) >killed 2>&1",
      folder.path().string(), without_mpi, std::getenv("ARGOSY_BUILD_DIR"));
  for (int tries = 0; stagings(folder.path()) == 0; ++tries) {
    ASSERT_LT(tries, 50) << "no soup was ever killed in its work";
    Files::system().remove_tree(folder / "soup");
    static_cast<void>(std::system(script.c_str()));
  }
  Files::system().remove_tree(folder / "soup");
  EXPECT_EQ(run(1, "ckpts/checkpoints/*"), 0) << output;
  EXPECT_THAT(output, HasSubstr("left by a job that was killed"));
  EXPECT_EQ(stagings(folder.path()), 0);
}

TEST_F(SoupTool, RunsTheProgramThatEvaluatesOnceTheCommandLineIsRight) {
  const Path alone = folder / "alone/soup", evaluates = folder / "alone/soup_validated";
  Files::system().make_folder(folder / "alone");
  std::filesystem::copy_file(program, alone);
  program = alone;
  EXPECT_EQ(run(1, "--help"), 0) << output;
  EXPECT_THAT(output, AllOf(HasSubstr("soup_validated"), HasSubstr("runs/mt_base/train/checkpoints/*")));
  EXPECT_EQ(run(2, "--validate mt.json ckpts/checkpoints/*"), 2) << output;
  EXPECT_THAT(output,
              HasSubstr(evaluates.string() + ", which runs the model, cannot be started: No such file or directory"));
  Files::system().write_atomically(evaluates, std::string_view{"#!/bin/sh\necho \"evaluates: $*\"\n"});
  std::filesystem::permissions(evaluates, std::filesystem::perms::owner_all);
  run(1, "--validate mt.json --set a=1 ckpts");
  EXPECT_EQ(output, "evaluates: --validate mt.json --set a=1 ckpts\n");
  for (const char* words : {"--validate mt.json --no-such ckpts", "--validate mt.json --recipe best ckpts",
                            "--validate mt.json --check ckpts", "--validate mt.json", "--weights --validate ckpts"}) {
    EXPECT_EQ(run(1, words), 2) << output;
    EXPECT_THAT(output, Not(HasSubstr("evaluates")));
  }
  EXPECT_EQ(run(1, "--validate mt.json --help"), 0) << output;
  EXPECT_THAT(output, HasSubstr("runs/mt_base/train/checkpoints/*"));
}

}  // namespace
}  // namespace argosy::soup
