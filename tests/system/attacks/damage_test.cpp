#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>

#include "chain.hpp"
#include "checkpoint/manifest.hpp"
#include "core/random.hpp"
#include "support/fault_options.hpp"

/// What a run leaves behind, damaged; then whoever reads it.
namespace argosy::test {
namespace {

/// One bit flipped somewhere in what a run leaves behind. Whoever reads the file refuses it, mends it, or comes to the
/// very result it has with the sound file.
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

/// Numbers of the JSON files that a run leaves, each set to what no writer of ours would write there; a manifest gets a
/// new digest of itself. Whoever reads the file does its work or refuses, and soon: no number reaches an allocation, a
/// loop or an assertion unchecked.
struct Place {
  std::size_t begin = 0, end = 0;
};

/// Numbers outside of strings.
std::vector<Place> numbers_in(const std::string& text) {
  std::vector<Place> places;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (in_string) {
      if (text[at] == '\\')
        ++at;
      else
        in_string = text[at] != '"';
    } else if (text[at] == '"') {
      in_string = true;
    } else if (text[at] == '-' || std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
      const std::size_t end = std::min(text.find_first_not_of("+-.eE0123456789", at), text.size());
      places.push_back({at, end});
      at = end - 1;
    }
  }
  return places;
}

bool is_json(const Path& path) {
  const std::string name = path.filename().string();
  return path.extension() == ".json" || path.extension() == ".jsonl" || name.starts_with("run.lock.");
}

std::string with(const std::string& text, const Place& place, const std::string& value, bool manifest) {
  std::string changed = text.substr(0, place.begin) + value + text.substr(place.end);
  if (!manifest) return changed;
  const std::size_t self = changed.rfind("\"self\":");
  return checkpoint::with_self_digest(changed.substr(0, self));
}

class Numbers : public testing::TestWithParam<std::size_t> {};

TEST_P(Numbers, OutOfBoundsAreRefusedOrDoNoHarm) {
  const Part& part = parts()[GetParam()];
  const Chain& chain = Chain::whole();
  const std::uint64_t seed = fault_seed(20261122);
  RandomStream random{seed, GetParam()};
  const std::string values[] = {"-1", "0", "2147483648", "9223372036854775807", "NaN", "1e308"};
  int changes = 0;
  for (const std::string& name : chain.files_of(part)) {
    if (!is_json(name)) continue;
    const std::string text = Files::system().read_text(chain.folder() / name);
    const std::vector<Place> places = numbers_in(text);
    const bool manifest = Path{name}.filename() == "MANIFEST.json";
    for (int i = 0; i < scaled(1) && !places.empty(); ++i) {
      const Place place = places[random.below(places.size())];
      const std::string& value = values[random.below(std::size(values))];
      const auto folder = chain.copy(part.folders);
      Files::system().write_atomically(*folder / name, with(text, place, value, manifest));
      ++changes;
      for (const Reading& reading : part.readings) {
        const Ended ended = run(folder->path(), reading.command);
        EXPECT_TRUE(ended.good() || ended.refused() || ended.code == 6)
            << fmt::format("seed {}: {} at byte {} of {} set to {}, read by: {}\ncode {}: {}", seed,
                           text.substr(place.begin, place.end - place.begin), place.begin, name, value, reading.command,
                           ended.code, ended.output);
      }
    }
  }
  EXPECT_GT(changes, 0);
}

INSTANTIATE_TEST_SUITE_P(In, Numbers, testing::Range<std::size_t>(0, 3),
                         [](const auto& parameter) { return parts()[parameter.param].name; });

}  // namespace
}  // namespace argosy::test
