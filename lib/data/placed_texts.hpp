#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "data/corpora.hpp"
#include "data/record_line.hpp"
#include "data/transforms/transform.hpp"

/// Records that are read where they stand, in the mapped files of their corpus. Token shards of data.mode online hold
/// places in the place of texts. Any number of threads may read.
namespace argosy::data {

/// Of each side, RecordPlace after RecordPlace, as bytes: the lines before an example, and its own. A line that holds
/// both sides stands in the target's.
struct Places {
  std::string source, target;
};
/// Those of consecutive records; nothing where one's is not known.
[[nodiscard]] std::optional<Places> places_of(std::span<const Record> records);

class PlacedTexts {
 public:
  /// Maps the files. Throws Error{data} for one that changed after it was counted.
  PlacedTexts(const Files& files, const CountedCorpus& corpus);

  /// Puts the text at the places that `example` holds into it. Throws Error{data} for a text that changed.
  void read(Example& example) const;

 private:
  struct Text {
    Path name;
    Mapping mapping;
    std::uint64_t begin = 0;  // among those of its side, laid end to end
  };
  [[nodiscard]] static std::vector<Text> map(const Files& files, std::span<const CountedFile> side);
  [[nodiscard]] std::string read(const std::vector<Text>& side, const RecordPlace& place) const;
  [[nodiscard]] Record read(const RecordPlace* source, const RecordPlace& target) const;
  TextRules rules_;
  std::vector<Text> source_, target_;
};

}  // namespace argosy::data
