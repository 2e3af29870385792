#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "data/line_reader.hpp"
#include "interchange/formats.hpp"
#include "interchange/vocabulary_change.hpp"

namespace argosy::interchange {
namespace {

constexpr std::size_t tested_lines = 100;

/// How often the tokenizer makes each piece of the text; of two sides, the one that makes it more often.
/// **Collective.**
std::vector<std::int64_t> count_pieces(comm::Context& context, const data::Tokenizer& tokenizer,
                                       const std::vector<Path>& files) {
  const std::vector<data::Side> sides = sides_of(tokenizer);
  const auto pieces = static_cast<std::size_t>(tokenizer.spelled_ids());
  std::vector<std::int64_t> counts(sides.size() * pieces);
  const auto rank = context.world.rank(), ranks = context.world.size();
  comm::agree(context.world, [&] {
    std::int64_t at = 0;
    for (const Path& path : files) {
      data::LineReader reader{context.files.open(path)};
      for (std::string line; reader.next(line); ++at) {
        if (at % ranks != rank) continue;
        for (std::size_t side = 0; side < sides.size(); ++side)
          for (const std::int32_t id : tokenizer.encode(line, sides[side]))
            ++counts[side * pieces + static_cast<std::size_t>(id)];
      }
    }
  });
  context.world.all_reduce(counts);
  for (std::size_t i = pieces; i < counts.size(); ++i) counts[i - pieces] = std::max(counts[i - pieces], counts[i]);
  counts.resize(pieces);
  return counts;
}

VocabularyChange trimmed(const model::StoredModel& model, const std::vector<std::int64_t>& counts,
                         std::int64_t min_count) {
  const data::Tokenizer& tokenizer = model.tokenizer;
  (void)distinct_pieces(tokenizer);
  const std::unique_ptr<VocabularyFile> file = VocabularyFile::of(tokenizer, model.where);
  std::vector<bool> used;
  used.reserve(counts.size());
  for (const std::int64_t count : counts) used.push_back(count >= min_count);
  for (const std::int64_t id : special_ids(tokenizer.vocabulary()))
    if (id < tokenizer.spelled_ids()) used[static_cast<std::size_t>(id)] = true;
  const std::vector<bool> kept = file->needed(std::move(used));
  VocabularyChange change;
  for (std::size_t id = 0; id < kept.size(); ++id)
    if (kept[id]) change.old_ids.push_back(static_cast<std::int64_t>(id));
  append_unspelled(change.old_ids, tokenizer);
  change.tokenizer = file->file_with(kept);
  return change;
}

}  // namespace

ChangedVocabulary trim_vocabulary(comm::Context& context, const model::StoredModel& model,
                                  const std::vector<Path>& files, std::int64_t min_count,
                                  const model::Forward& forward) {
  const spec::Architecture& shape = model.spec.architecture;
  if (context.is_root() && shape.tie_embeddings && shape.type == spec::ModelType::encoder_decoder)
    context.log.warn(
        "source, target and output share one matrix: the text must have both languages, or pieces of the "
        "other one are lost");
  const std::vector<std::int64_t> counts = count_pieces(context, model.tokenizer, files);
  std::optional<model::StoredModel> changed;
  comm::agree(context.world, [&] { changed.emplace(changed_model(model, trimmed(model, counts, min_count))); });
  std::vector<VocabularyFigures> figures(1);
  comm::at_root(context.world, [&] {
    figures[0] = check_vocabulary(model, *changed, first_lines(context.files, files, tested_lines), forward);
  });
  return {std::move(*changed), context.world.broadcast(figures).front()};
}

}  // namespace argosy::interchange
