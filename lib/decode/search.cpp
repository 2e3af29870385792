#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "decode/decode.hpp"
#include "kernels/decoding.hpp"

namespace argosy::decode {
namespace {

using Ids = std::vector<std::int32_t>;

/// A sentence that is being worked on.
struct Sentence {
  std::size_t index = 0;  // in the caller's list
  std::int64_t max_steps = 0, step = 0;
  std::vector<Ids> sequences;  // by beam: ids so far; one beam before the first step
  std::vector<float> scores;   // by beam
  std::int32_t first_id = 0;   // which the first step feeds
  std::vector<Hypothesis> finished;
  bool top_finished = false;
};

/// One candidate for the next step: a beam continued by an id.
struct Candidate {
  std::int64_t beam = 0, id = 0;
  float score = 0;
};

class Search {
 public:
  Search(model::Inference& model, const std::vector<Ids>& sources, const SearchOptions& options)
      : model_(model), sources_(sources), options_(options), beam_(options.beam), cache_(model.start()) {
    order_.resize(sources.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return sources[a].size() > sources[b].size(); });
  }

  std::vector<Hypothesis> run() {
    std::vector<Hypothesis> out(sources_.size());
    for (admit(); !alive_.empty(); admit()) step(out);
    return out;
  }

 private:
  [[nodiscard]] std::int64_t length_of(std::size_t index) const { return std::ssize(sources_[index]); }

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
    // The last id of a prompt is fed by the first step, which gives logits.
    const auto read = [&](std::size_t index) { return length_of(index) - (has_encoder ? 0 : 1); };
    const auto rows = static_cast<std::int64_t>(batch.size()), width = read(batch.front());
    const at::Tensor ids = at::full({rows, width}, shape.vocabulary.start, at::kLong),
                     lengths = at::empty({rows}, at::kLong);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::size_t index = batch[static_cast<std::size_t>(row)];
      const Ids& source = sources_[index];
      const std::int64_t count = read(index);
      std::copy(source.begin(), source.begin() + count, ids.data_ptr<std::int64_t>() + row * width);
      lengths.data_ptr<std::int64_t>()[row] = count;
      alive_.push_back({.index = index,
                        .max_steps = max_steps(length_of(index)),
                        .sequences = {Ids()},
                        .scores = {0},
                        .first_id = has_encoder ? static_cast<std::int32_t>(shape.vocabulary.start) : source.back(),
                        .finished = {}});
    }
    model_.add(cache_, ids.to(model_.device()), lengths.to(model_.device()));
  }

  [[nodiscard]] std::int64_t max_steps(std::int64_t source_length) const {
    // The position table is one of the target, or the target follows the prompt in it.
    const spec::Architecture& shape = model_.architecture();
    const std::int64_t positions =
        shape.type == spec::ModelType::encoder_decoder ? shape.max_positions : shape.max_positions - source_length + 1;
    const std::int64_t steps = std::min(options_.max_length, positions);
    if (options_.max_length_factor == 0) return steps;
    const double bound = std::floor(options_.max_length_factor * static_cast<double>(source_length)) + 10;
    return bound < static_cast<double>(steps) ? static_cast<std::int64_t>(bound) : steps;
  }

  void step(std::vector<Hypothesis>& out) {
    const std::int64_t wanted = beam_ == 1 ? 1 : 2 * beam_;
    const at::Tensor logits = model_.step(cache_, last_ids().to(model_.device()));
    forbid(logits);
    const auto [on_device, ids_on_device] =
        kernels::top_log_probabilities(logits, model_.architecture().vocabulary.pieces, wanted);
    const at::Tensor log_p = on_device.cpu(), ids = ids_on_device.cpu();

    std::vector<Sentence> next;
    std::vector<std::int64_t> origin;
    std::int64_t first_row = 0;
    for (Sentence& sentence : alive_) {
      const std::int64_t row = first_row;
      first_row += std::ssize(sentence.sequences);
      const std::vector<Candidate> chosen =
          advance(sentence, best(sentence, log_p.const_data_ptr<float>() + row * wanted,
                                 ids.const_data_ptr<std::int64_t>() + row * wanted, wanted));
      if (chosen.empty()) {
        out[sentence.index] = winner(sentence);
        continue;
      }
      std::vector<Ids> sequences;
      sentence.scores.clear();
      for (const Candidate& candidate : chosen) {
        origin.push_back(row + candidate.beam);
        sequences.push_back(sentence.sequences[static_cast<std::size_t>(candidate.beam)]);
        sequences.back().push_back(static_cast<std::int32_t>(candidate.id));
        sentence.scores.push_back(candidate.score);
      }
      sentence.sequences = std::move(sequences);
      ++sentence.step;
      next.push_back(std::move(sentence));
    }
    alive_ = std::move(next);
    bool moved = std::ssize(origin) != first_row;
    for (std::size_t i = 0; i < origin.size(); ++i) moved = moved || origin[i] != static_cast<std::int64_t>(i);
    if (moved) cache_.select(origin);
  }

  /// int64 [rows], on the host.
  [[nodiscard]] at::Tensor last_ids() const {
    const at::Tensor ids = at::empty({cache_.rows()}, at::kLong);
    auto* id = ids.data_ptr<std::int64_t>();
    for (const Sentence& sentence : alive_) {
      for (const Ids& sequence : sentence.sequences) *id++ = sequence.empty() ? sentence.first_id : sequence.back();
    }
    return ids;
  }

  /// No piece is the start id, and none is EOS before the least length.
  void forbid(const at::Tensor& logits) const {
    constexpr double never = -std::numeric_limits<double>::infinity();
    const spec::Vocabulary& vocabulary = model_.architecture().vocabulary;
    if (vocabulary.start < vocabulary.pieces) logits.select(1, vocabulary.start).fill_(never);
    if (options_.min_length == 0) return;
    std::int64_t row = 0;
    for (const Sentence& sentence : alive_) {
      const std::int64_t rows = std::ssize(sentence.sequences);
      if (sentence.step < options_.min_length) logits.narrow(0, row, rows).select(1, vocabulary.eos).fill_(never);
      row += rows;
    }
  }

  /// The `wanted` best continuations of all beams, best first. log_p and ids: of each beam, best first.
  [[nodiscard]] static std::vector<Candidate> best(const Sentence& sentence, const float* log_p,
                                                   const std::int64_t* ids, std::int64_t wanted) {
    std::vector<Candidate> candidates;
    for (std::int64_t beam = 0; beam < std::ssize(sentence.sequences); ++beam) {
      for (std::int64_t k = 0; k < wanted; ++k, ++log_p, ++ids) {
        if (std::isnan(*log_p)) {
          throw_claim(Fault::numeric, "the model gives NaN as the score of a piece", "the model", "finite scores",
                      "NaN", "use another checkpoint");
        }
        candidates.push_back({beam, *ids, *log_p + sentence.scores[static_cast<std::size_t>(beam)]});
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    candidates.resize(static_cast<std::size_t>(wanted));
    return candidates;
  }

  /// Stores finished hypotheses and returns the candidates that continue, one per beam; none when the sentence is done.
  std::vector<Candidate> advance(Sentence& sentence, const std::vector<Candidate>& candidates) const {
    const std::int64_t eos = model_.architecture().vocabulary.eos;
    const bool last_step = sentence.step + 1 >= sentence.max_steps;
    std::vector<Candidate> chosen;
    auto spare = static_cast<std::size_t>(beam_);
    for (std::size_t k = 0; k < static_cast<std::size_t>(beam_); ++k) {
      Candidate candidate = candidates[k];
      // A beam wider than what can be said yet is filled up with impossible candidates, which finish nothing.
      const bool possible = candidate.score > -std::numeric_limits<float>::infinity();
      if (possible && (candidate.id == eos || last_step)) {
        if (k == 0) sentence.top_finished = true;
        Hypothesis hypothesis{sentence.sequences[static_cast<std::size_t>(candidate.beam)], 0.0};
        const auto length = static_cast<double>(hypothesis.ids.size() + 1);  // with EOS, or with the id cut off below
        if (candidate.id != eos) hypothesis.ids.push_back(static_cast<std::int32_t>(candidate.id));
        hypothesis.score = static_cast<double>(candidate.score) / std::pow(length, options_.length_penalty);
        sentence.finished.push_back(std::move(hypothesis));
        while (spare < candidates.size() && candidates[spare].id == eos) ++spare;
        if (spare < candidates.size()) candidate = candidates[spare++];
      }
      chosen.push_back(candidate);
    }
    const double enough = beam_ == 1 ? 1 : std::max(1.0, std::round(static_cast<double>(beam_) * options_.patience));
    const bool done = last_step || (options_.length_penalty == 0.0 && sentence.top_finished) ||
                      static_cast<double>(sentence.finished.size()) >= enough;
    return done ? std::vector<Candidate>{} : chosen;
  }

  static Hypothesis winner(Sentence& sentence) {
    return std::move(*std::max_element(sentence.finished.begin(), sentence.finished.end(),
                                       [](const Hypothesis& a, const Hypothesis& b) { return a.score < b.score; }));
  }

  model::Inference& model_;
  const std::vector<Ids>& sources_;
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
  least(options.max_length, "--max-length", 1);
  least(options.min_length, "--min-length", 0);
  least(options.batch_elements, "batch_elements", 1);
  require(std::isfinite(options.length_penalty), "--length-penalty", "a finite number", options.length_penalty);
  require(options.patience > 0, "--patience", "a number above 0", options.patience);
  require(options.max_length_factor >= 0, "--max-length-factor", "at least 0", options.max_length_factor);
}

}  // namespace

std::vector<Hypothesis> search(model::Inference& model, const std::vector<Ids>& sources, const SearchOptions& options) {
  const c10::InferenceMode guard;
  check(options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) {
      throw_error(Fault::data, fmt::format("sentence {}", i + 1), "a source of at least one token id", "none");
    }
  }
  return Search(model, sources, options).run();
}

}  // namespace argosy::decode
