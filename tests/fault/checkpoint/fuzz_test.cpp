#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "core/error.hpp"
#include "damage.hpp"

/// Readers of hostile bytes end with an error of ours or with a result: no crash, no endless loop, no memory that the
/// file's size does not warrant.
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

TEST(Fuzz, OfManifestsWithARightDigestEndsInAnErrorOrAResult) {
  const DamagedRun run{3};
  const std::string whole = content_of(run.newer() / checkpoint::manifest_name);
  const std::string body = whole.substr(0, whole.rfind("\"self\""));
  std::istringstream list{
      R"(0 -1 1e308 4294967296 9223372036854775807 18446744073709551616 [ ] {} null true "" "a" 1.5 , [[[[ "nan"
         281474976710656)"};
  const std::vector<std::string> words{std::istream_iterator<std::string>{list}, {}};
  const std::uint64_t seed = fault_seed(5);
  const int count = scaled(20'000);
  RandomStream random{seed, fuzz_stream};
  int refused = 0, read = 0;
  for (int i = 0; i < count; ++i) {
    const std::string text = checkpoint::with_self_digest(mutated(body, random, words));
    try {
      EXPECT_LE(checkpoint::parse_manifest(text, "fuzz").manifest.world(), 1 << 20);
      ++read;
    } catch (const Error& error) {
      ASSERT_TRUE(error.fault() == Fault::corrupt || error.fault() == Fault::usage)
          << error.what() << ", manifest " << i << ", ARGOSY_FAULT_SEED=" << seed << "\n"
          << text;
      ++refused;
    }
  }
  EXPECT_GT(refused, count / 4);
  EXPECT_GT(read, count / 100) << "some edits change nothing that is checked";
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
