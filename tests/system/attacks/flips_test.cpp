#include <fmt/format.h>
#include <gtest/gtest.h>

#include "chain.hpp"
#include "core/random.hpp"
#include "support/fault_options.hpp"

/// One bit flipped somewhere in what a run leaves behind. Whoever reads the file refuses it, mends it, or comes to the
/// very result it has with the sound file.
namespace argosy::test {
namespace {

class Flips : public testing::TestWithParam<std::size_t> {};

TEST_P(Flips, AreRefusedOrMendedOrDoNothing) {
  const Part& part = parts()[GetParam()];
  const Chain& chain = Chain::whole();
  std::vector<std::string> sound;
  {
    const auto folder = chain.copy(part.folders);
    for (const Reading& reading : part.readings) {
      const Ended ended = run(folder->path(), reading.command);
      ASSERT_TRUE(ended.good()) << reading.command << ": " << ended.output;
      sound.push_back(result_at(*folder / reading.result));
      ASSERT_NE(sound.back(), "");
    }
  }
  const std::vector<std::string> files = chain.files_of(part);
  const std::uint64_t seed = fault_seed(20261122);
  RandomStream random{seed, GetParam()};
  const int flips = scaled(6);
  int refused = 0;
  for (int i = 0; i < flips; ++i) {
    const std::string& name = files[random.below(files.size())];
    const auto folder = chain.copy(part.folders);
    std::string bytes = Files::system().read_text(*folder / name);
    if (bytes.empty()) continue;
    const std::size_t at = random.below(bytes.size());
    bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1U << random.below(8)));
    Files::system().write_atomically(*folder / name, bytes);
    for (std::size_t r = 0; r < part.readings.size(); ++r) {
      const Ended ended = run(folder->path(), part.readings[r].command);
      const std::string trace = fmt::format("seed {}, flip {}: byte {} of {}, read by: {}\ncode {}: {}", seed, i, at,
                                            name, part.readings[r].command, ended.code, ended.output);
      refused += ended.good() ? 0 : 1;
      if (ended.good()) {
        EXPECT_EQ(result_at(*folder / part.readings[r].result), sound[r]) << trace;
      } else {
        EXPECT_TRUE(ended.refused() || part.name == "Export") << trace;  // sha256sum has its own codes
      }
    }
  }
  EXPECT_GT(refused, 0) << "not one of " << flips << " was seen";
}

INSTANTIATE_TEST_SUITE_P(In, Flips, testing::Range<std::size_t>(0, 4),
                         [](const auto& parameter) { return parts()[parameter.param].name; });

}  // namespace
}  // namespace argosy::test
