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
      const auto length = static_cast<double>(sources[index].size());
      std::int64_t steps = options_.max_length;
      if (options_.max_length_factor > 0) {
        steps = std::min(steps, static_cast<std::int64_t>(options_.max_length_factor * length) + 10);
      }
      alive.push_back({.index = index,
                       .max_steps = steps,
                       .sequences = std::vector<Ids>(static_cast<std::size_t>(beam_)),
                       .finished = {}});
    }
    const auto rows = static_cast<std::int64_t>(alive.size()) * beam_;
    auto [cache, logits] = begin(sources, batch);
    // In the first step all beams of a sentence are equal: only the first may speak.
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
    at::Tensor source = at::full({n, width}, model_.shape().start_id, at::kLong);
    at::Tensor lengths = at::empty({n}, at::kLong);
    for (std::int64_t row = 0; row < n; ++row) {
      const Ids& ids = sources[batch[static_cast<std::size_t>(row)]];
      std::copy(ids.begin(), ids.end(), source.data_ptr<std::int64_t>() + row * width);
      lengths.data_ptr<std::int64_t>()[row] = static_cast<std::int64_t>(ids.size());
    }
    const at::Device device = model_.units().front().parameters().front().weight.device();
    if (model_.shape().type == model::ModelType::encoder_decoder) {
      model::Cache cache = inference_.start(source.to(device), lengths.to(device), beam_);
      at::Tensor logits = inference_.step(cache, at::full({n * beam_}, model_.shape().start_id, at::kLong).to(device));
      return {std::move(cache), std::move(logits)};
    }
    model::Cache cache = inference_.start(n * beam_);
    at::Tensor logits = inference_.extend(cache, source.repeat_interleave(beam_, 0).to(device)).select(1, width - 1);
    return {std::move(cache), std::move(logits)};
  }

  void forbid(at::Tensor& logits, std::int64_t step) const {
    constexpr double never = -std::numeric_limits<double>::infinity();
    const model::ModelShape& shape = model_.shape();
    logits.narrow(1, shape.dead_begin, shape.vocab_padded - shape.dead_begin).fill_(never);
    if (shape.start_id < shape.dead_begin) logits.select(1, shape.start_id).fill_(never);
    if (step < options_.min_length) logits.select(1, shape.eos_id).fill_(never);
  }

  /// The 2·beam best continuations of each sentence (1 for greedy), best first.
  std::vector<std::vector<Candidate>> best(const at::Tensor& scores) const {
    const std::int64_t vocabulary = scores.size(1), wanted = beam_ == 1 ? 1 : 2 * beam_;
    const auto [values, indices] = scores.view({-1, beam_ * vocabulary}).topk(wanted, 1);
    const at::Tensor value = values.cpu(), index = indices.cpu();
    std::vector<std::vector<Candidate>> all(static_cast<std::size_t>(value.size(0)));
    for (std::size_t s = 0; s < all.size(); ++s) {
      for (std::int64_t k = 0; k < wanted; ++k) {
        const std::int64_t at = static_cast<std::int64_t>(s) * wanted + k;
        const std::int64_t flat = index.const_data_ptr<std::int64_t>()[at];
        all[s].push_back({flat / vocabulary, flat % vocabulary, value.const_data_ptr<float>()[at]});
      }
      std::stable_sort(all[s].begin(), all[s].end(), [](const Candidate& a, const Candidate& b) {
        return a.score != b.score ? a.score > b.score : std::pair{a.beam, a.id} < std::pair{b.beam, b.id};
      });
    }
    return all;
  }

  /// Books finished hypotheses and returns the candidates that go on, one a beam; none when the sentence is done.
  std::vector<Candidate> advance(Sentence& sentence, const std::vector<Candidate>& candidates,
                                 std::int64_t step) const {
    const std::int64_t eos = model_.shape().eos_id;
    const bool last_step = step + 1 >= sentence.max_steps;
    std::vector<Candidate> chosen;
    auto spare = static_cast<std::size_t>(beam_);
    for (std::size_t k = 0; k < static_cast<std::size_t>(beam_); ++k) {
      Candidate candidate = candidates[k];
      if (candidate.id == eos || last_step) {
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
    const auto enough = static_cast<std::size_t>(std::llround(static_cast<double>(beam_) * options_.patience));
    const bool done = last_step || (options_.length_penalty == 0.0 && sentence.top_finished) ||
                      sentence.finished.size() >= std::max<std::size_t>(1, enough);
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

}  // namespace

std::vector<Hypothesis> search(model::Model& model, const std::vector<Ids>& sources, const SearchOptions& options) {
  const c10::InferenceMode guard;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) {
      throw Error{Fault::data,
                  {.wanted = "a source of at least one id", .got = "none", .where = fmt::format("sentence {}", i + 1)}};
    }
  }
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() > sources[b].size(); });

  std::vector<Hypothesis> out(sources.size());
  BatchSearch batch_search(model, options);
  const bool equal_lengths = model.shape().type == model::ModelType::decoder;  // prompts are not padded
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
