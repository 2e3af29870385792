#include "data/transforms/denoise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "data/transforms/draws.hpp"
#include "data/transforms/ranges.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Denoise&) {
  static constexpr config::KeyText texts[] = {
      {"objective", "denoise: bart: restore the source; mass: restore one masked span, which alone bears loss"},
      {"permute", "denoise: probability that the sentences of the source are shuffled"},
      {"rotate", "denoise: probability that the source begins at another piece"},
      {"insert", "denoise: masks that are inserted, as a share of the pieces"},
      {"mask", "denoise: share of the words, or of the pieces, that is masked"},
      {"random", "denoise: share of the masks that are a random piece instead"},
      {"span", "denoise: what is masked at once: subword (a piece), word, or poisson (several words)"},
      {"lambda", "denoise: mean number of words of a span of the kind poisson"},
      {"replace_length", "denoise: masks in the place of a span: 1, 0, or -1 (one for each piece)"},
      {"mask_piece", "denoise: the piece that stands for what is masked"},
  };
  return texts;
}

void validate(const Denoise& config, config::Problems& problems) {
  for (const auto& [pointer, share] : {std::pair{"/permute", config.permute},
                                       {"/rotate", config.rotate},
                                       {"/insert", config.insert},
                                       {"/mask", config.mask},
                                       {"/random", config.random}})
    require_in(problems, pointer, share, 0., 1.);
  require_in(problems, "/lambda", config.lambda, .1, 100.);
  require_in(problems, "/replace_length", config.replace_length, -1, 1);
  require_piece(problems, "/mask_piece", config.mask_piece);
  const bool bart = config.objective == DenoiseObjective::bart;
  const double other_noise = config.permute + config.rotate + config.insert;
  problems.require(config.mask > 0 || (bart && other_noise > 0), "/mask", "above 0, or there is no noise", config.mask);
  problems.require(bart || other_noise == 0, "/objective", "bart where permute, rotate or insert are above 0", "mass");
}

namespace {

using Ids = std::vector<std::int32_t>;

std::size_t share_of(std::size_t size, double share) {
  constexpr double rounding = 1e-9;  // 0.3 of 10 is 3, not 4
  return static_cast<std::size_t>(std::ceil(static_cast<double>(size) * share - rounding));
}

class DenoiseTransform final : public Transform {
 public:
  DenoiseTransform(const Denoise& config, const Tokenizer& tokenizer)
      : config_(config),
        mask_(id_of_piece(tokenizer, config.mask_piece, Denoise::type)),
        live_(ordinary_ids(tokenizer)) {
    std::erase(live_, mask_);
    for (std::int64_t id = 0; id < tokenizer.vocabulary().pieces; ++id) {
      const std::string piece = tokenizer.piece(id);
      // A blank is spelled U+2581 by SentencePiece, and U+0120 by byte-level BPE.
      begins_word_.push_back(piece.starts_with("\u2581") ||
                             (tokenizer.kind() == TokenizerKind::json && piece.starts_with("\u0120")));
      ends_sentence_.push_back(piece.ends_with('.') || piece.ends_with('?') || piece.ends_with('!'));
    }
  }

  [[nodiscard]] std::string_view type() const override { return Denoise::type; }
  [[nodiscard]] std::string recipe() const override {
    return fmt::format("denoise {} {} {} {} {} {} {} {} {} {}", static_cast<int>(config_.objective), config_.permute,
                       config_.rotate, config_.insert, config_.mask, config_.random, static_cast<int>(config_.span),
                       config_.lambda, config_.replace_length, mask_);
  }
  [[nodiscard]] Stage stage() const override { return Denoise::stage; }
  [[nodiscard]] bool is_random() const override { return true; }
  [[nodiscard]] Lengths longest(Lengths lengths, const Example&) const override {
    const std::size_t masked = lengths.source + most_empty_spans(share_of(lengths.source, config_.mask));
    return {.source = narrow<std::uint32_t>(masked + share_of(masked, config_.insert)), .target = lengths.source};
  }
  [[nodiscard]] bool apply(Example& example, RandomStream* random) const override {
    example.target = example.source;
    example.loss.clear();
    if (random == nullptr || example.source.empty()) return true;
    if (config_.objective == DenoiseObjective::mass)
      mask_one_span(example, *random);
    else
      add_noise(example.source, *random);
    return true;
  }

 private:
  void mask_one_span(Example& example, RandomStream& random) const {
    const std::size_t size = share_of(example.source.size(), config_.mask);
    const std::size_t begin = random.below(example.source.size() - size + 1);
    example.loss.assign(example.source.size(), false);
    for (std::size_t at = begin; at < begin + size; ++at) {
      example.source[at] = draw_mask(random);
      example.loss[at] = true;
    }
  }

  void add_noise(Ids& ids, RandomStream& random) const {
    if (random.uniform() < config_.permute) permute(ids, random);
    if (config_.mask > 0) mask_spans(ids, random);
    insert_masks(ids, share_of(ids.size(), config_.insert), random);
    if (random.uniform() < config_.rotate && ids.size() > 1) {
      const std::size_t first = 1 + random.below(ids.size() - 1);
      std::ranges::rotate(ids, ids.begin() + static_cast<std::ptrdiff_t>(first));
    }
  }

  /// Several marks in a row end one sentence.
  void permute(Ids& ids, RandomStream& random) const {
    const auto ends = [&](std::size_t at) { return ends_sentence_[static_cast<std::size_t>(ids[at])]; };
    std::vector<Ids> sentences(1);
    for (std::size_t at = 0; at < ids.size(); ++at) {
      sentences.back().push_back(ids[at]);
      if (ends(at) && at + 1 < ids.size() && !ends(at + 1)) sentences.emplace_back();
    }
    random.shuffle(sentences);
    ids.clear();
    for (const Ids& sentence : sentences) ids.insert(ids.end(), sentence.begin(), sentence.end());
  }

  void mask_spans(Ids& ids, RandomStream& random) const {
    std::vector<std::size_t> units;  // where words begin, or pieces
    for (std::size_t at = 0; at < ids.size(); ++at)
      if (at == 0 || config_.span == MaskedSpan::subword || begins_word_[static_cast<std::size_t>(ids[at])])
        units.push_back(at);
    std::size_t masked = share_of(units.size(), config_.mask);
    if (config_.replace_length == 0) masked = std::min(masked, units.size() - 1);  // something stays
    const auto [lengths, empty] = draw_lengths(masked, random);
    // Spans and units that stay are in a row; where the spans are in this row is drawn.
    const std::vector<std::size_t> places = draw_places(random, units.size() - masked + lengths.size(), lengths.size());
    units.push_back(ids.size());
    Ids noisy;
    std::size_t unit = 0;
    for (std::size_t place = 0, span = 0; unit + 1 < units.size(); ++place) {
      const bool stays = span == places.size() || places[span] != place;
      const std::size_t end = unit + (stays ? 1 : lengths[span++]);
      const std::size_t pieces = units[end] - units[unit];
      if (stays)
        noisy.insert(noisy.end(), ids.begin() + static_cast<std::ptrdiff_t>(units[unit]),
                     ids.begin() + static_cast<std::ptrdiff_t>(units[end]));
      else
        add_masks(noisy, config_.replace_length < 0 ? pieces : static_cast<std::size_t>(config_.replace_length),
                  random);
      unit = end;
    }
    ids = std::move(noisy);
    insert_masks(ids, empty, random);
  }

  struct Spans {
    std::vector<std::size_t> lengths{};  // their sum is what is masked
    std::size_t empty = 0;
  };
  [[nodiscard]] Spans draw_lengths(std::size_t masked, RandomStream& random) const {
    Spans spans;
    if (config_.span != MaskedSpan::poisson) {
      spans.lengths.assign(masked, 1);
      return spans;
    }
    for (std::size_t left = masked; left > 0;) {
      const std::size_t length = std::min(left, draw_poisson(random));
      left -= length;
      if (length > 0)
        spans.lengths.push_back(length);
      else
        ++spans.empty;
    }
    spans.empty = std::min(spans.empty, most_empty_spans(masked));
    random.shuffle(spans.lengths);  // the one that was cut is not always the last
    return spans;
  }
  [[nodiscard]] std::size_t most_empty_spans(std::size_t masked) const {
    if (config_.span != MaskedSpan::poisson) return 0;
    const double expected = static_cast<double>(masked) * std::exp(-config_.lambda) / config_.lambda;
    return static_cast<std::size_t>(std::ceil(2 * expected));
  }
  /// Counts arrivals within 1 at a rate of lambda.
  [[nodiscard]] std::size_t draw_poisson(RandomStream& random) const {
    std::size_t count = 0;
    for (double time = 0; (time -= std::log1p(-random.uniform())) < config_.lambda;) ++count;
    return count;
  }

  [[nodiscard]] std::int32_t draw_mask(RandomStream& random) const {
    return config_.random > 0 && random.uniform() < config_.random ? draw_one(random, live_) : mask_;
  }
  void add_masks(Ids& ids, std::size_t count, RandomStream& random) const {
    for (; count > 0; --count) ids.push_back(draw_mask(random));
  }
  void insert_masks(Ids& ids, std::size_t count, RandomStream& random) const {
    if (count == 0) return;
    Ids longer;
    const std::vector<std::size_t> places = draw_places(random, ids.size() + count, count);
    for (std::size_t at = 0, next = 0; at < ids.size() + count; ++at) {
      if (next < places.size() && places[next] == at) {
        longer.push_back(draw_mask(random));
        ++next;
      } else {
        longer.push_back(ids[at - next]);
      }
    }
    ids = std::move(longer);
  }

  Denoise config_;
  std::int32_t mask_;
  Ids live_;
  std::vector<bool> begins_word_, ends_sentence_;  // by id
};

}  // namespace

std::unique_ptr<const Transform> Denoise::make(const Materials& materials) const {
  if (materials.tokenizer.is_by_side())
    throw_error(Fault::config, "the transform denoise", "a corpus whose sides have one tokenizer",
                "one with a tokenizer for each language", "list the language in tasks.denoise");
  return std::make_unique<DenoiseTransform>(*this, materials.tokenizer);
}

}  // namespace argosy::data
