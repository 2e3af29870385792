#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "core/random.hpp"
#include "decode/choice.hpp"
#include "decode/decode.hpp"
#include "kernels/decoding.hpp"

namespace argosy::decode {
namespace {

using Ids = std::vector<std::int32_t>;

/// A hypothesis that goes on, with a row of the cache.
struct Beam {
  Ids ids;
  float score = 0;          // Σ log p
  std::int64_t sample = 0;  // its number among those of the sentence
};

/// A sentence that is being worked on.
struct Sentence {
  std::size_t index = 0;  // in the caller's list
  std::int64_t max_steps = 0, step = 0;
  std::vector<Beam> beams;    // one before the first step after a prefix
  std::int32_t first_id = 0;  // which the first step feeds
  std::vector<Hypothesis> finished;
  bool top_finished = false;
};

/// One candidate for the next step: a beam continued by an id.
struct Candidate {
  std::int64_t beam = 0, id = 0;
  float score = 0;
  std::int64_t sample = 0;
};

/// Steps until the positions are used up: the position table is one of the target, or the target follows the prompt.
std::int64_t positions_for(const model::Inference& model, const Source& source) {
  const spec::Architecture& shape = model.architecture();
  return shape.type == spec::ModelType::encoder_decoder ? shape.max_positions
                                                        : shape.max_positions - std::ssize(source.ids) + 1;
}

class Search {
 public:
  Search(model::Inference& model, const std::vector<Source>& sources, const SearchOptions& options)
      : model_(model), sources_(sources), options_(options), beam_(options.beam), cache_(model.start()) {
    order_.resize(sources.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return sources[a].ids.size() > sources[b].ids.size(); });
  }

  std::vector<std::vector<Hypothesis>> run() {
    std::vector<std::vector<Hypothesis>> out(sources_.size());
    for (admit(); !alive_.empty(); admit()) step(out);
    return out;
  }

 private:
  [[nodiscard]] std::int64_t length_of(std::size_t index) const { return std::ssize(sources_[index].ids); }

  /// Takes the next sentences when a quarter of the room for them is free.
  void admit() {
    std::int64_t used = 0;
    for (const Sentence& sentence : alive_) used += length_of(sentence.index);
    if (4 * used > 3 * options_.batch_elements) return;
    std::vector<std::size_t> batch;
    for (; next_ < order_.size(); ++next_) {
      used += length_of(order_[next_]);
      if (used > options_.batch_elements && !(alive_.empty() && batch.empty())) break;
      batch.push_back(order_[next_]);
    }
    if (batch.empty()) return;

    const spec::Architecture& shape = model_.architecture();
    const bool has_encoder = shape.type == spec::ModelType::encoder_decoder;
    // The last id of a prompt is fed by the first step, which gives logits. With prefix_lm the others see it as well.
    const auto read = [&](std::size_t index) { return length_of(index) - (has_encoder || shape.prefix_lm ? 0 : 1); };
    const auto rows = static_cast<std::int64_t>(batch.size()), width = read(batch.front());
    const at::Tensor ids = at::full({rows, width}, shape.vocabulary.start, at::kLong),
                     lengths = at::empty({rows}, at::kLong);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::size_t index = batch[static_cast<std::size_t>(row)];
      const Ids& source = sources_[index].ids;
      const std::int64_t count = read(index);
      std::copy(source.begin(), source.begin() + count, ids.data_ptr<std::int64_t>() + row * width);
      lengths.data_ptr<std::int64_t>()[row] = count;
      alive_.push_back({.index = index,
                        .max_steps = max_steps(index),
                        .beams = {Beam()},
                        .first_id = has_encoder ? static_cast<std::int32_t>(shape.vocabulary.start) : source.back(),
                        .finished = {}});
    }
    model_.add(cache_, ids.to(model_.device()), lengths.to(model_.device()));
  }

  [[nodiscard]] std::int64_t max_steps(std::size_t index) const {
    std::int64_t steps = std::min(options_.max_length, positions_for(model_, sources_[index]));
    if (options_.max_length_factor > 0) {
      const double bound = std::floor(options_.max_length_factor * static_cast<double>(length_of(index))) + 10;
      if (bound < static_cast<double>(steps)) steps = static_cast<std::int64_t>(bound);
    }
    return steps;
  }

  void step(std::vector<std::vector<Hypothesis>>& out) {
    const at::Tensor logits = model_.step(cache_, last_ids().to(model_.device()));
    forbid(logits);
    if (options_.no_repeat_ngram > 0 || options_.repetition_penalty != 1) penalize(logits);
    // Of sampling, logits on the host; otherwise, of each row the `wanted` best continuations.
    const std::int64_t live = model_.architecture().vocabulary.pieces, wanted = beam_ == 1 ? 1 : 2 * beam_;
    at::Tensor values, ids;
    if (options_.sample) {
      values = logits.cpu();
    } else {
      const auto [on_device, ids_on_device] = kernels::top_log_probabilities(logits, live, wanted);
      values = on_device.cpu(), ids = ids_on_device.cpu();
    }

    std::vector<Sentence> next;
    std::vector<std::int64_t> origin;
    std::int64_t first_row = 0;
    for (Sentence& sentence : alive_) {
      const std::int64_t row = first_row;
      first_row += std::ssize(sentence.beams);
      const float* const value = values.const_data_ptr<float>() + row * values.stride(0);
      std::vector<Candidate> chosen;
      if (const Ids& prefix = sources_[sentence.index].prefix; sentence.step < std::ssize(prefix)) {
        chosen = {{.id = prefix[static_cast<std::size_t>(sentence.step)]}};
      } else if (options_.sample) {
        chosen = advance_samples(sentence, value, live, values.stride(0));
      } else {
        chosen = advance(sentence, best(sentence, value, ids.const_data_ptr<std::int64_t>() + row * wanted, wanted));
      }
      if (chosen.empty()) {
        out[sentence.index] = winners(sentence);
        continue;
      }
      std::vector<Beam> beams;
      for (const Candidate& candidate : chosen) {
        origin.push_back(row + candidate.beam);
        beams.push_back({continued(sentence, candidate), candidate.score, candidate.sample});
      }
      sentence.beams = std::move(beams);
      ++sentence.step;
      next.push_back(std::move(sentence));
    }
    alive_ = std::move(next);
    bool moved = std::ssize(origin) != first_row;
    for (std::size_t i = 0; i < origin.size(); ++i) moved = moved || origin[i] != static_cast<std::int64_t>(i);
    if (moved) cache_.select(origin);
  }

  [[nodiscard]] static Ids continued(const Sentence& sentence, const Candidate& candidate) {
    Ids ids = sentence.beams[static_cast<std::size_t>(candidate.beam)].ids;
    ids.push_back(static_cast<std::int32_t>(candidate.id));
    return ids;
  }

  /// int64 [rows], on the host.
  [[nodiscard]] at::Tensor last_ids() const {
    const at::Tensor ids = at::empty({cache_.rows()}, at::kLong);
    auto* id = ids.data_ptr<std::int64_t>();
    for (const Sentence& sentence : alive_) {
      for (const Beam& beam : sentence.beams) *id++ = beam.ids.empty() ? sentence.first_id : beam.ids.back();
    }
    return ids;
  }

  /// No piece is the start id or pad, and none is EOS before the least length.
  void forbid(const at::Tensor& logits) const {
    constexpr double never = -std::numeric_limits<double>::infinity();
    const spec::Vocabulary& vocabulary = model_.architecture().vocabulary;
    for (const std::int64_t id : {vocabulary.start, vocabulary.filler()}) {
      if (id < vocabulary.pieces && id != vocabulary.eos) logits.select(1, id).fill_(never);
    }
    if (options_.min_length == 0) return;
    std::int64_t row = 0;
    for (const Sentence& sentence : alive_) {
      const std::int64_t rows = std::ssize(sentence.beams);
      if (sentence.step < options_.min_length) logits.narrow(0, row, rows).select(1, vocabulary.eos).fill_(never);
      row += rows;
    }
  }

  void penalize(const at::Tensor& logits) const {
    const spec::Architecture& shape = model_.architecture();
    const at::Tensor on_host = logits.cpu();
    auto* row = on_host.mutable_data_ptr<float>();
    for (const Sentence& sentence : alive_) {
      for (const Beam& beam : sentence.beams) {
        Ids ids = shape.type == spec::ModelType::decoder ? sources_[sentence.index].ids : Ids();
        ids.insert(ids.end(), beam.ids.begin(), beam.ids.end());
        const std::span z{row, static_cast<std::size_t>(shape.vocabulary.pieces)};
        if (options_.repetition_penalty != 1)
          penalize_repetition(z, ids, static_cast<float>(options_.repetition_penalty));
        if (options_.no_repeat_ngram > 0) forbid_repeated_ngrams(z, ids, options_.no_repeat_ngram);
        row += on_host.stride(0);
      }
    }
    if (!logits.is_cpu()) logits.copy_(on_host);
  }

  static void refuse_nan(float log_p) {
    if (!std::isnan(log_p)) return;
    throw_claim(Fault::numeric, "the model gives NaN as the score of a piece", "the model", "finite scores", "NaN",
                "use another checkpoint");
  }

  /// The `wanted` best continuations of all beams, best first. log_p and ids: of each beam, best first.
  [[nodiscard]] static std::vector<Candidate> best(const Sentence& sentence, const float* log_p,
                                                   const std::int64_t* ids, std::int64_t wanted) {
    std::vector<Candidate> candidates;
    for (std::int64_t beam = 0; beam < std::ssize(sentence.beams); ++beam) {
      for (std::int64_t k = 0; k < wanted; ++k, ++log_p, ++ids) {
        refuse_nan(*log_p);
        candidates.push_back({beam, *ids, *log_p + sentence.beams[static_cast<std::size_t>(beam)].score});
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    candidates.resize(static_cast<std::size_t>(wanted));
    return candidates;
  }

  [[nodiscard]] bool ends(const Sentence& sentence, const Candidate& candidate) const {
    return candidate.id == model_.architecture().vocabulary.eos ||
           (options_.stop && options_.stop(continued(sentence, candidate)));
  }

  [[nodiscard]] Hypothesis finished(const Sentence& sentence, const Candidate& candidate) const {
    Hypothesis hypothesis{.ids = continued(sentence, candidate), .log_probability = candidate.score};
    const auto length = static_cast<double>(hypothesis.ids.size());  // with EOS, or with the id that is the last
    if (candidate.id == model_.architecture().vocabulary.eos) hypothesis.ids.pop_back();
    const double base = options_.length_penalty_type == LengthPenalty::wu ? (5 + length) / 6 : length;
    hypothesis.score =
        (hypothesis.log_probability - options_.word_penalty * length) / std::pow(base, options_.length_penalty);
    return hypothesis;
  }

  /// Stores finished hypotheses and returns the candidates that continue, one per beam; none when the sentence is done.
  std::vector<Candidate> advance(Sentence& sentence, const std::vector<Candidate>& candidates) const {
    const bool last_step = sentence.step + 1 >= sentence.max_steps;
    // A beam wider than what can be said is filled up with impossible candidates, which finish nothing.
    constexpr float impossible = -std::numeric_limits<float>::infinity();
    std::vector<Candidate> chosen;
    auto spare = static_cast<std::size_t>(beam_);
    bool goes_on = false;
    for (std::size_t k = 0; k < static_cast<std::size_t>(beam_); ++k) {
      Candidate candidate = candidates[k];
      if (candidate.score > impossible && (last_step || ends(sentence, candidate))) {
        if (k == 0) sentence.top_finished = true;
        sentence.finished.push_back(finished(sentence, candidate));
        while (spare < candidates.size() && ends(sentence, candidates[spare])) ++spare;
        if (spare < candidates.size()) {
          candidate = candidates[spare++];
        } else {
          candidate.score = impossible;
        }
      }
      goes_on = goes_on || candidate.score > impossible;
      chosen.push_back(candidate);
    }
    const double enough = beam_ == 1 ? 1 : std::max(1.0, std::round(static_cast<double>(beam_) * options_.patience));
    const auto count = std::ssize(sentence.finished);
    const bool done = last_step || !goes_on ||
                      (count >= options_.nbest &&
                       ((options_.length_penalty == 0.0 && options_.word_penalty == 0.0 && sentence.top_finished) ||
                        static_cast<double>(count) >= enough));
    return done ? std::vector<Candidate>{} : chosen;
  }

  /// The same for samples, each of which goes on alone. logits: of the beams, `stride` apart.
  std::vector<Candidate> advance_samples(Sentence& sentence, const float* logits, std::int64_t live,
                                         std::int64_t stride) const {
    const Source& source = sources_[sentence.index];
    const bool last_step = sentence.step + 1 >= sentence.max_steps, starts = sentence.step == std::ssize(source.prefix);
    if (starts) sentence.finished.resize(static_cast<std::size_t>(options_.nbest));
    std::vector<Candidate> chosen;
    for (std::int64_t k = 0; k < (starts ? options_.nbest : std::ssize(sentence.beams)); ++k) {
      const std::int64_t at = starts ? 0 : k;
      const Beam& beam = sentence.beams[static_cast<std::size_t>(at)];
      const std::int64_t sample = starts ? k : beam.sample;
      RandomStream random(options_.seed, source.line, static_cast<std::uint64_t>(sentence.step),
                          static_cast<std::uint64_t>(sample));
      const Draw drawn = draw({logits + at * stride, static_cast<std::size_t>(live)},
                              {options_.temperature, options_.top_k, options_.top_p}, random.uniform());
      refuse_nan(drawn.log_p);
      const Candidate candidate{at, drawn.id, beam.score + drawn.log_p, sample};
      if (last_step || ends(sentence, candidate)) {
        sentence.finished[static_cast<std::size_t>(sample)] = finished(sentence, candidate);
      } else {
        chosen.push_back(candidate);
      }
    }
    return chosen;
  }

  [[nodiscard]] std::vector<Hypothesis> winners(Sentence& sentence) const {
    std::vector<Hypothesis> found = std::move(sentence.finished);
    if (options_.sample) return found;
    std::stable_sort(found.begin(), found.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    if (std::ssize(found) > options_.nbest) found.resize(static_cast<std::size_t>(options_.nbest));
    return found;
  }

  model::Inference& model_;
  const std::vector<Source>& sources_;
  const SearchOptions& options_;
  std::int64_t beam_;
  std::vector<std::size_t> order_;  // of sources, longest first
  std::size_t next_ = 0;            // in order_
  std::vector<Sentence> alive_;     // their beams are the rows of the cache
  model::Cache cache_;
};

void check(const SearchOptions& options) {
  const auto require = [](bool good, std::string_view key, std::string_view wanted, double got) {
    if (good) return;
    throw_error(Fault::usage, std::string(key), std::string(wanted), fmt::format("{}", got));
  };
  const auto least = [&](std::int64_t value, std::string_view key, std::int64_t limit) {
    require(value >= limit, key, fmt::format("at least {}", limit), static_cast<double>(value));
  };
  least(options.beam, "--beam", 1);
  least(options.nbest, "--nbest", 1);
  least(options.max_length, "--max-length", 1);
  least(options.min_length, "--min-length", 0);
  least(options.no_repeat_ngram, "--no-repeat-ngram", 0);
  least(options.top_k, "--top-k", 0);
  least(options.batch_elements, "batch_elements", 1);
  require(std::isfinite(options.length_penalty), "--length-penalty", "a finite number", options.length_penalty);
  require(std::isfinite(options.word_penalty), "--word-penalty", "a finite number", options.word_penalty);
  require(options.patience > 0, "--patience", "a number above 0", options.patience);
  require(options.max_length_factor >= 0, "--max-length-factor", "at least 0", options.max_length_factor);
  const auto positive = [&](double value, std::string_view key) {
    require(std::isfinite(value) && value > 0, key, "a number above 0", value);
  };
  positive(options.repetition_penalty, "--repetition-penalty");
  positive(options.temperature, "--temperature");
  require(options.top_p > 0 && options.top_p <= 1, "--top-p", "a number above 0 and at most 1", options.top_p);
  if (options.sample) {
    require(options.beam == 1, "--beam", "1 with --sample", static_cast<double>(options.beam));
  } else if (options.nbest > options.beam) {
    throw_claim(Fault::usage,
                fmt::format("--nbest {} is more than the hypotheses of --beam {}", options.nbest, options.beam),
                "--nbest", "at most --beam", std::to_string(options.nbest), "give a wider --beam, or --sample");
  }
}

}  // namespace

std::vector<std::vector<Hypothesis>> search(model::Inference& model, const std::vector<Source>& sources,
                                            const SearchOptions& options) {
  const c10::InferenceMode guard;
  check(options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    if (source.ids.empty()) {
      throw_error(Fault::data, fmt::format("sentence {}", i + 1), "a source of at least one token id", "none");
    }
    const std::int64_t most = positions_for(model, source) - 1;
    if (!source.prefix.empty() && std::ssize(source.prefix) > most) {
      throw_error(Fault::data, fmt::format("sentence {}", i + 1), fmt::format("a prefix of at most {} ids", most),
                  std::to_string(source.prefix.size()));
    }
    ARGOSY_CHECK(source.prefix.empty() || model.architecture().type == spec::ModelType::encoder_decoder,
                 "a prefix for a decoder-only model");
  }
  return Search(model, sources, options).run();
}

}  // namespace argosy::decode
