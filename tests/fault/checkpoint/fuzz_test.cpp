#include <gtest/gtest.h>

#include <algorithm>

#include "damage.hpp"

/// Readers of hostile shards end with an error of ours or with a result: no crash, no endless loop. Those of manifests
/// are fuzzed by tests/fuzz/manifest_fuzz.cpp.
namespace argosy::test {
namespace {

constexpr std::uint64_t fuzz_stream = 14;

/// A few edits such as damage and forgers make.
std::string mutated(std::string text, RandomStream& random, const std::vector<std::string>& words) {
  const std::uint64_t edits = 1 + random.below(4);
  for (std::uint64_t i = 0; i < edits && !text.empty(); ++i) {
    const std::size_t at = random.below(text.size());
    const std::size_t length = std::min<std::size_t>(random.below(24), text.size() - at);
    switch (random.below(5)) {
      case 0:
        text[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random.below(text.size()), length));
        break;
      case 3:
        text.replace(at, std::min<std::size_t>(length, 3), words[random.below(words.size())]);
        break;
      default: {  // a whole number
        const std::size_t begin = text.find_first_of("0123456789", at);
        if (begin == std::string::npos) break;
        const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
        text.replace(begin, end - begin, words[random.below(words.size())]);
      }
    }
  }
  return text;
}

TEST(Fuzz, OfShardsEndsInAnErrorOrAResult) {
  const DamagedRun run{2};
  const Path path = run.shard(run.newer(), 1);
  const std::string whole = content_of(path);
  const std::string ones(8, '\xff'), zeros(8, '\0'), a_large_number = std::string(7, '\0') + '\x7f';
  const std::vector<std::string> words{ones, zeros, "\x89HDF\r\n\x1a\n", "OHDR", "FRHP", a_large_number};
  const std::uint64_t seed = fault_seed(6);
  const int count = scaled(600);
  RandomStream random{seed, fuzz_stream};
  int seen = 0;
  for (int i = 0; i < count; ++i) {
    std::string content = mutated(whole, random, words);
    content.resize(whole.size());  // else its size gives it away
    const DamagedRun::Damage damage{path, content};
    const DamagedRun::Verdict verdict = run.read_in_a_child();
    ASSERT_TRUE(is_safe(verdict)) << "verdict " << static_cast<int>(verdict) << ", shard " << i
                                  << ", ARGOSY_FAULT_SEED=" << seed;
    seen += verdict == DamagedRun::Verdict::detected ? 1 : 0;
  }
  EXPECT_GT(seen, count / 2);
}

}  // namespace
}  // namespace argosy::test
