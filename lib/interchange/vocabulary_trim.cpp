#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "data/line_reader.hpp"
#include "interchange/vocabulary_change.hpp"

namespace argosy::interchange {
namespace {

constexpr std::size_t tested_lines = 100;

/// How often the tokenizer makes each piece of the text. **Collective.**
std::vector<std::int64_t> count_pieces(comm::Context& context, const data::Tokenizer& tokenizer,
                                       const std::vector<Path>& files) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(tokenizer.vocabulary().pieces));
  const auto rank = context.world.rank(), ranks = context.world.size();
  comm::agree(context.world, [&] {
    std::int64_t at = 0;
    for (const Path& path : files) {
      data::LineReader reader{context.files.open(path)};
      for (std::string line; reader.next(line); ++at) {
        if (at % ranks != rank) continue;
        for (const std::int32_t id : tokenizer.encode(line)) ++counts[static_cast<std::size_t>(id)];
      }
    }
  });
  context.world.all_reduce(counts);
  return counts;
}

/// Which pieces stay, by id.
std::vector<bool> kept_pieces(const Pieces& pieces, const std::vector<std::int64_t>& counts, std::int64_t min_count) {
  const PieceBuilder builder{pieces};
  std::vector<bool> kept(pieces.texts.size());
  std::optional<std::size_t> lowest, highest;
  for (std::size_t id = 0; id < kept.size(); ++id) {
    kept[id] = pieces.types[id] != PieceType::normal || counts[id] >= min_count;
    if (pieces.types[id] != PieceType::normal) continue;
    if (!lowest || pieces.scores[id] < pieces.scores[*lowest]) lowest = id;
    if (!highest || pieces.scores[id] > pieces.scores[*highest]) highest = id;
  }
  if (!builder.is_bpe()) {
    if (lowest) kept[*lowest] = kept[*highest] = true;
    return kept;
  }
  for (std::size_t id = 0; id < kept.size(); ++id) {
    if (pieces.types[id] != PieceType::normal || counts[id] < min_count) continue;
    for (const std::int64_t part : builder.built(pieces.texts[id])) kept[static_cast<std::size_t>(part)] = true;
  }
  return kept;
}

VocabularyChange trimmed(const data::Tokenizer& tokenizer, const std::vector<std::int64_t>& counts,
                         std::int64_t min_count) {
  const Pieces all{tokenizer.model_bytes()};
  const std::vector<bool> kept = kept_pieces(all, counts, min_count);
  VocabularyChange change;
  Pieces pieces = all;
  pieces.texts.clear();
  pieces.scores.clear();
  pieces.types.clear();
  for (std::size_t id = 0; id < kept.size(); ++id) {
    if (!kept[id]) continue;
    change.kept.push_back(static_cast<std::int64_t>(id));
    pieces.texts.push_back(all.texts[id]);
    pieces.scores.push_back(all.scores[id]);
    pieces.types.push_back(all.types[id]);
  }
  change.tokenizer = with_pieces(tokenizer.model_bytes(), pieces);
  return change;
}

}  // namespace

ChangedVocabulary trim_vocabulary(comm::Context& context, const model::StoredModel& model,
                                  const std::vector<Path>& files, std::int64_t min_count,
                                  const model::Forward& forward) {
  require_spelled_ids(model);
  const spec::Architecture& shape = model.spec.architecture;
  if (context.is_root() && shape.tie_embeddings && shape.type == spec::ModelType::encoder_decoder)
    context.log.warn(
        "source, target and output share one matrix: the text must have both languages, or pieces of the "
        "other one are lost");
  const std::vector<std::int64_t> counts = count_pieces(context, model.tokenizer, files);
  std::optional<model::StoredModel> changed;
  comm::agree(context.world,
              [&] { changed.emplace(changed_model(model, trimmed(model.tokenizer, counts, min_count))); });
  std::vector<VocabularyFigures> figures(1);
  comm::at_root(context.world, [&] {
    figures[0] = check_vocabulary(model, *changed, first_lines(context.files, files, tested_lines), forward);
  });
  return {std::move(*changed), context.world.broadcast(figures).front()};
}

}  // namespace argosy::interchange
