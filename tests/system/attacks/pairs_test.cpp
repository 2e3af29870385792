#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "chain.hpp"
#include "core/random.hpp"
#include "support/fault_options.hpp"

/// Two instances of a tool at once, with different orders for one and the same place. One of them does its work, or
/// both one after the other; what is there at the end is the work of one of them, whole, and never a mixture.
namespace argosy::test {
namespace {

struct Pair {
  std::string tool;
  std::vector<std::string> folders;  // of the chain, that are copied
  std::array<std::string, 2> commands;
  std::vector<std::string> results;  // files or folders that belong together
};

const std::vector<Pair>& pairs() {
  const std::vector<std::string> texts{"config.json", "train.en", "train.es", "valid.en", "valid.es"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), texts.begin(), texts.end());
    return more;
  };
  const std::string count =
      "$A/count train.en train.es >table.$$ && sed s:/.*/:: <table.$$ >out";  // without the folder
  static const std::vector<Pair> all{
      {"count", texts, {count, count}, {"out"}},
      {"preprocess",
       with({"t.model", "t.model.recipe"}),
       {"$A/preprocess config.json",
        "$A/preprocess config.json --set "
        "\"data.corpora.0.transforms=[{\\\"type\\\":\\\"max_length\\\",\\\"source\\\":60}]\""},
       {"shards"}},
      {"preprocess_from_nothing",
       texts,
       {"$A/preprocess config.json", "$A/preprocess config.json --set data.tokenizer_training.vocab_size=290"},
       {"shards", "t.model"}},
      {"train",
       with({"t.model", "shards"}),
       {"$A/train config.json", "$A/train config.json --set seed=4"},
       {"run/checkpoints/000000004", "run/export/000000008"}},
      {"soup",
       {"run"},
       {"$A/soup run/checkpoints/000000002 run/checkpoints/000000004 --out out",
        "$A/soup run/checkpoints/000000002 run/checkpoints/000000006 --out out"},
       {"out"}},
      {"export", {"soup"}, {"$A/export soup --out out", "$A/export soup --out out --quantization int8"}, {"out"}},
      {"translate",
       {"soup", "valid.en"},
       {"$A/translate soup --input valid.en --output out",
        "$A/translate soup --input valid.en --output out --max-length 3"},
       {"out"}}};
  return all;
}

std::string results_of(const Path& folder, const Pair& pair) {
  std::string text;
  for (const std::string& result : pair.results) text += result_at(folder / result) + "\n";
  return text;
}

class Pairs : public testing::TestWithParam<std::size_t> {};

TEST_P(Pairs, LeaveTheWorkOfOne) {
  const Pair& pair = pairs()[GetParam()];
  const Chain& chain = Chain::whole();
  std::array<std::string, 2> alone;
  double longest_s = 0;
  for (std::size_t which : {0, 1}) {
    const auto folder = chain.copy(pair.folders);
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended = run(folder->path(), pair.commands[which]);
    longest_s = std::max(longest_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    ASSERT_TRUE(ended.good()) << pair.commands[which] << ": " << ended.output;
    alone[which] = results_of(folder->path(), pair);
  }
  const std::uint64_t seed = fault_seed(20261122);
  RandomStream random{seed, GetParam()};
  const int rounds = scaled(3);
  for (int round = 0; round < rounds; ++round) {
    const auto folder = chain.copy(pair.folders);
    const double delay_s = random.uniform() * longest_s;
    std::array<Ended, 2> ended;
    {
      const std::jthread second([&] {
        std::this_thread::sleep_for(std::chrono::duration<double>(delay_s));
        ended[1] = run(folder->path(), pair.commands[1]);
      });
      ended[0] = run(folder->path(), pair.commands[0]);
    }
    const std::string trace =
        fmt::format("seed {}, round {}, the second after {:.3f} s\n--- code {}: {}\n--- code {}: {}", seed, round,
                    delay_s, ended[0].code, ended[0].output, ended[1].code, ended[1].output);
    EXPECT_TRUE(ended[0].good() || ended[1].good()) << trace;
    for (const Ended& one : ended) EXPECT_TRUE(one.good() || one.refused()) << trace;
    const std::string got = results_of(folder->path(), pair);
    // Whoever ended well has left its work; where both have, the second may have replaced or resumed the first's.
    EXPECT_TRUE((ended[0].good() && got == alone[0]) || (ended[1].good() && got == alone[1])) << got << trace;
    for (const std::string& name : files_below(folder->path()))
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name << " is left\n" << trace;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Pairs, testing::Range<std::size_t>(0, 7),
                         [](const auto& parameter) { return pairs()[parameter.param].tool; });

}  // namespace
}  // namespace argosy::test
