#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "decode/decode.hpp"

namespace argosy::decode {
namespace {

using Ids = std::vector<std::int32_t>;

/// One sentence in a running batch.
struct Sentence {
  std::size_t index = 0;  // in the caller's list
  std::int64_t max_steps = 0;
  std::vector<Ids> sequences;  // by beam: ids so far
  std::vector<Hypothesis> finished;
  bool top_finished = false;
};

/// One candidate for the next step: a beam continued by an id.
struct Candidate {
  std::int64_t beam = 0, id = 0;
  float score = 0;
};

class BatchSearch {
 public:
  BatchSearch(model::Model& model, const SearchOptions& options)
      : model_(model), inference_(model), options_(options), beam_(options.beam) {}

  void run(const std::vector<Ids>& sources, std::span<const std::size_t> batch, std::vector<Hypothesis>& out) {
    std::vector<Sentence> alive;
    for (const std::size_t index : batch) {
      const auto length = static_cast<std::int64_t>(sources[index].size());
      std::int64_t steps = std::min(options_.max_length, positions_left(length));
      if (options_.max_length_factor > 0) {
        const double bound = std::floor(options_.max_length_factor * static_cast<double>(length)) + 10;
        if (bound < static_cast<double>(steps)) steps = static_cast<std::int64_t>(bound);
      }
      alive.push_back({.index = index,
                       .max_steps = steps,
                       .sequences = std::vector<Ids>(static_cast<std::size_t>(beam_)),
                       .finished = {}});
    }
    const auto rows = static_cast<std::int64_t>(alive.size()) * beam_;
    auto [cache, logits] = begin(sources, batch);
    // In the first step all beams of a sentence are equal: only the first one is used.
    at::Tensor scores =
        at::full({static_cast<std::int64_t>(alive.size()), beam_}, -std::numeric_limits<float>::infinity());
    scores.select(1, 0).zero_();
    scores = scores.reshape({rows, 1}).to(logits.device());

    for (std::int64_t step = 0; !alive.empty(); ++step) {
      if (step > 0) logits = inference_.step(cache, last_ids_.to(logits.device()));
      forbid(logits, step);
      const std::vector<std::vector<Candidate>> candidates = best(at::log_softmax(logits, -1).add_(scores));

      std::vector<Sentence> next;
      std::vector<std::int64_t> origin, ids;
      std::vector<float> kept;
      for (std::size_t s = 0; s < alive.size(); ++s) {
        Sentence& sentence = alive[s];
        const std::vector<Candidate> chosen = advance(sentence, candidates[s], step);
        if (chosen.empty()) {
          out[sentence.index] = winner(sentence);
          continue;
        }
        std::vector<Ids> sequences;
        for (const Candidate& candidate : chosen) {
          origin.push_back(static_cast<std::int64_t>(s) * beam_ + candidate.beam);
          ids.push_back(candidate.id);
          kept.push_back(candidate.score);
          sequences.push_back(sentence.sequences[static_cast<std::size_t>(candidate.beam)]);
          sequences.back().push_back(static_cast<std::int32_t>(candidate.id));
        }
        sentence.sequences = std::move(sequences);
        next.push_back(std::move(sentence));
      }
      const bool reordered = origin.size() != alive.size() * static_cast<std::size_t>(beam_) ||
                             !std::is_sorted(origin.begin(), origin.end()) ||
                             std::adjacent_find(origin.begin(), origin.end()) != origin.end();
      alive = std::move(next);
      if (alive.empty()) break;
      if (reordered) cache.select(at::tensor(origin, at::kLong).to(logits.device()));
      last_ids_ = at::tensor(ids, at::kLong);
      scores = at::tensor(kept, at::kFloat).unsqueeze(1).to(logits.device());
    }
  }

 private:
  /// Runs the encoder (or the prompt) and the first step: the cache and the logits [rows, V].
  std::pair<model::Cache, at::Tensor> begin(const std::vector<Ids>& sources, std::span<const std::size_t> batch) {
    const auto n = static_cast<std::int64_t>(batch.size());
    std::int64_t width = 0;
    for (const std::size_t index : batch) width = std::max(width, static_cast<std::int64_t>(sources[index].size()));
    at::Tensor source = at::full({n, width}, model_.architecture().vocabulary.start, at::kLong);
    at::Tensor lengths = at::empty({n}, at::kLong);
    for (std::int64_t row = 0; row < n; ++row) {
      const Ids& ids = sources[batch[static_cast<std::size_t>(row)]];
      std::copy(ids.begin(), ids.end(), source.data_ptr<std::int64_t>() + row * width);
      lengths.data_ptr<std::int64_t>()[row] = static_cast<std::int64_t>(ids.size());
    }
    const at::Device device = model_.units().front().parameters().front().weight.device();
    if (model_.architecture().type == spec::ModelType::encoder_decoder) {
      model::Cache cache = inference_.start(source.to(device), lengths.to(device), beam_);
      at::Tensor logits =
          inference_.step(cache, at::full({n * beam_}, model_.architecture().vocabulary.start, at::kLong).to(device));
      return {std::move(cache), std::move(logits)};
    }
    model::Cache cache = inference_.start(n * beam_);
    at::Tensor logits = inference_.extend(cache, source.repeat_interleave(beam_, 0).to(device)).select(1, width - 1);
    return {std::move(cache), std::move(logits)};
  }

  /// Steps the position table has room for: the target has one of its own, or it follows the prompt.
  [[nodiscard]] std::int64_t positions_left(std::int64_t source_length) const {
    const spec::Architecture& shape = model_.architecture();
    return shape.type == spec::ModelType::encoder_decoder ? shape.max_positions
                                                          : shape.max_positions - source_length + 1;
  }

  void forbid(at::Tensor& logits, std::int64_t step) const {
    constexpr double never = -std::numeric_limits<double>::infinity();
    const spec::Architecture& shape = model_.architecture();
    logits.narrow(1, shape.vocabulary.pieces, shape.vocabulary.rows - shape.vocabulary.pieces).fill_(never);
    if (shape.vocabulary.start < shape.vocabulary.pieces) logits.select(1, shape.vocabulary.start).fill_(never);
    if (step < options_.min_length) logits.select(1, shape.vocabulary.eos).fill_(never);
  }

  /// The 2·beam best continuations of each sentence (1 for greedy), best first. Not topk, which breaks ties as it
  /// likes.
  std::vector<std::vector<Candidate>> best(const at::Tensor& scores) const {
    const std::int64_t vocabulary = scores.size(1), all = beam_ * vocabulary;
    const std::size_t wanted = beam_ == 1 ? 1 : static_cast<std::size_t>(2 * beam_);
    const at::Tensor host = scores.cpu().contiguous();
    const float* score = host.const_data_ptr<float>();
    std::vector<std::vector<Candidate>> result(static_cast<std::size_t>(scores.size(0) / beam_));
    for (std::vector<Candidate>& top : result) {
      for (std::int64_t i = 0; i < all; ++i) {
        const float value = score[i];
        if (top.size() == wanted && value <= top.back().score) continue;
        if (std::isnan(value)) {
          throw_claim(Fault::numeric, "the model gives NaN as the score of a piece", "the model", "finite scores",
                      "NaN", "use another checkpoint");
        }
        const auto behind =
            std::upper_bound(top.begin(), top.end(), value, [](float a, const Candidate& b) { return a > b.score; });
        top.insert(behind, {i / vocabulary, i % vocabulary, value});
        if (top.size() > wanted) top.pop_back();
      }
      score += all;
    }
    return result;
  }

  /// Stores finished hypotheses and returns the candidates that continue, one per beam; none when the sentence is done.
  std::vector<Candidate> advance(Sentence& sentence, const std::vector<Candidate>& candidates,
                                 std::int64_t step) const {
    const std::int64_t eos = model_.architecture().vocabulary.eos;
    const bool last_step = step + 1 >= sentence.max_steps;
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

  model::Model& model_;
  model::Inference inference_;
  const SearchOptions& options_;
  std::int64_t beam_;
  at::Tensor last_ids_;  // int64 [rows], on the host
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

std::vector<Hypothesis> search(model::Model& model, const std::vector<Ids>& sources, const SearchOptions& options) {
  const c10::InferenceMode guard;
  check(options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) {
      throw_error(Fault::data, fmt::format("sentence {}", i + 1), "a source of at least one token id", "none");
    }
  }
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() > sources[b].size(); });

  std::vector<Hypothesis> out(sources.size());
  BatchSearch batch_search(model, options);
  const bool equal_lengths = model.architecture().type == spec::ModelType::decoder;  // prompts are not padded
  for (std::size_t begin = 0; begin < order.size();) {
    const std::size_t width = sources[order[begin]].size();
    std::size_t end = begin + 1;
    while (end < order.size() && static_cast<std::int64_t>((end + 1 - begin) * width) <= options.batch_elements &&
           (!equal_lengths || sources[order[end]].size() == width)) {
      ++end;
    }
    batch_search.run(sources, std::span{order}.subspan(begin, end - begin), out);
    begin = end;
  }
  return out;
}

}  // namespace argosy::decode
