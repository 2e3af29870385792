#include "decode/translate.hpp"

#include <algorithm>
#include <numeric>

#include "comm/message.hpp"
#include "core/error.hpp"
#include "decode/scores.hpp"

namespace argosy::decode {
std::vector<Translation> translate_lines(const comm::Communicator& world, model::Model& model,
                                         const data::Tokenizer& tokenizer, const std::vector<std::string>& lines,
                                         const SearchOptions& options, std::uint64_t first) {
  const bool encoder_decoder = model.architecture().type == spec::ModelType::encoder_decoder;
  std::vector<std::vector<std::int32_t>> ids(lines.size());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ids[i] = tokenizer.encode(lines[i]);
    if (!ids[i].empty()) order.push_back(i);
    if (encoder_decoder) {
      ids[i].push_back(static_cast<std::int32_t>(tokenizer.vocabulary().eos));
    } else {
      ids[i].insert(ids[i].begin(), static_cast<std::int32_t>(tokenizer.vocabulary().start));
    }
    if (static_cast<std::int64_t>(ids[i].size()) > model.architecture().max_positions) {
      throw Error{Fault::data,
                  {.wanted = fmt::format("at most {} pieces (model.max_positions)", model.architecture().max_positions),
                   .got = std::to_string(ids[i].size()),
                   .where = fmt::format("line {} of the text to translate", first + i + 1),
                   .remedy = "split the line"}};
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ids[a].size() > ids[b].size(); });

  // Neighbours in the sorted list go to different ranks: all get the same mixture of lengths.
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<std::vector<std::int32_t>> mine;
  for (auto k = static_cast<std::size_t>(world.rank()); k < order.size(); k += size) mine.push_back(ids[order[k]]);
  std::vector<std::string> texts;
  std::vector<double> scores;
  comm::agree(world, [&] {
    for (const Hypothesis& hypothesis : search(model, mine, options)) {
      std::string& text = texts.emplace_back(tokenizer.decode(hypothesis.ids));
      std::replace(text.begin(), text.end(), '\n', ' ');  // a byte piece may spell one; a translation is one line
      scores.push_back(hypothesis.score);
    }
  });
  const std::vector<std::string> messages = world.all_gather(comm::to_message(texts));
  const std::vector<std::vector<double>> all_scores = world.all_gather(scores);
  std::vector<Translation> out(lines.size());
  for (std::size_t rank = 0; rank < size; ++rank) {
    auto of_rank = comm::from_message<std::vector<std::string>>(messages[rank]);
    for (std::size_t i = 0, k = rank; k < order.size(); ++i, k += size)
      out[order[k]] = {std::move(of_rank.at(i)), all_scores[rank].at(i)};
  }
  return out;
}

TranslationScores score_translations(const std::vector<Translation>& translations,
                                     const std::vector<std::string>& references) {
  ARGOSY_CHECK(translations.size() == references.size(), "{} and {}", translations.size(), references.size());
  BleuCounts bleu;
  ChrfCounts chrf;
  for (std::size_t i = 0; i < translations.size(); ++i) {
    bleu.add(translations[i].text, references[i]);
    chrf.add(translations[i].text, references[i]);
  }
  return {bleu.score(), chrf.score()};
}

}  // namespace argosy::decode
