#include <gmock/gmock.h>

#include <numeric>

#include "data/batcher.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre;

TEST(PackedRows, SplitFillsEveryRowButTheLast) {
  const std::vector<std::int64_t> positions{3, 6, 2};
  EXPECT_THAT(plan_packed_rows(positions, 4, DocumentCut::split),
              ElementsAre(LmRow{.first = 0, .offset = 0, .positions = 4, .tgt_tokens = 3},
                          LmRow{.first = 1, .offset = 1, .positions = 4, .tgt_tokens = 4},
                          LmRow{.first = 1, .offset = 5, .positions = 3, .tgt_tokens = 1}));
}

TEST(PackedRows, WholeCutsOnlyDocumentsLongerThanARow) {
  const std::vector<std::int64_t> positions{3, 4, 9, 2};
  EXPECT_THAT(plan_packed_rows(positions, 4, DocumentCut::whole),
              ElementsAre(LmRow{.first = 0, .offset = 0, .positions = 3, .tgt_tokens = 2},
                          LmRow{.first = 1, .offset = 0, .positions = 4, .tgt_tokens = 3},
                          LmRow{.first = 2, .offset = 0, .positions = 4, .tgt_tokens = 4},
                          LmRow{.first = 2, .offset = 4, .positions = 4, .tgt_tokens = 4},
                          LmRow{.first = 2, .offset = 8, .positions = 3, .tgt_tokens = 1}));
}

TEST(SingleRows, HoldEachLabelOnce) {
  const std::vector<std::int64_t> positions{3, 6, 5};
  EXPECT_THAT(plan_single_rows(positions, 4),
              ElementsAre(LmRow{.first = 0, .offset = 0, .positions = 2, .tgt_tokens = 2},
                          LmRow{.first = 1, .offset = 0, .positions = 4, .tgt_tokens = 4},
                          LmRow{.first = 1, .offset = 4, .positions = 1, .tgt_tokens = 1},
                          LmRow{.first = 2, .offset = 0, .positions = 4, .tgt_tokens = 4}));
}

TEST(AddRow, LaysTheSameLabelsPackedAndSingle) {
  const std::vector<std::vector<std::int32_t>> documents{{11, 12, 2}, {13, 14, 15, 16, 17, 2}, {18, 2}};
  std::vector<std::int64_t> positions;
  for (const auto& document : documents) positions.push_back(static_cast<std::int64_t>(document.size()) + 1);
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::llama}, 60);
  const auto batch_of = [&](const std::vector<LmRow>& rows) {
    LmBatcher batcher{vocabulary, static_cast<std::int64_t>(rows.size()), 5};
    for (const LmRow& row : rows) {
      add_row(batcher, row, [&](std::uint64_t place, std::int64_t begin, std::int64_t end) {
        const auto& document = documents[place];
        const auto last = std::min(end, std::ssize(document));
        return DocumentPart{.ids = {document.begin() + begin, document.begin() + last},
                            .loss = {},
                            .begin = begin,
                            .size = std::ssize(document)};
      });
    }
    return batcher.take();
  };
  const auto labels = [](const Batch& batch) {
    std::vector<std::int64_t> found;
    for (const std::int64_t label : batch.target_labels)
      if (label != no_label) found.push_back(label);
    return found;
  };
  for (const auto& rows : {plan_packed_rows(positions, 5, DocumentCut::split),
                           plan_packed_rows(positions, 5, DocumentCut::whole), plan_single_rows(positions, 5)}) {
    const Batch batch = batch_of(rows);
    EXPECT_THAT(labels(batch), ElementsAre(11, 12, 2, 13, 14, 15, 16, 17, 2, 18, 2));
    EXPECT_EQ(batch.tgt_tokens,
              std::accumulate(rows.begin(), rows.end(), std::int64_t{0},
                              [](std::int64_t sum, const LmRow& row) { return sum + row.tgt_tokens; }));
  }
}

}  // namespace
}  // namespace argosy::data
