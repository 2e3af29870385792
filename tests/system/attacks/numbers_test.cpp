#include <gtest/gtest.h>

#include <cctype>

#include "chain.hpp"
#include "checkpoint/manifest.hpp"
#include "core/random.hpp"
#include "support/fault_options.hpp"

/// Numbers of the JSON files that a run leaves, each set to what no writer of ours would write there; a manifest gets a
/// new digest of itself. Whoever reads the file does its work or refuses, and soon: no number reaches an allocation, a
/// loop or an assertion unchecked.
namespace argosy::test {
namespace {

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
