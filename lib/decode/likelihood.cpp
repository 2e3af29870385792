#include "decode/likelihood.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "decode/escapes.hpp"
#include "decode/lines.hpp"
#include "kernels/decoding.hpp"

namespace argosy::decode {
namespace {

constexpr std::int64_t logits_rows = 256;  // whose logits exist at once

/// Targets that are read together: padded rows, and where the outputs stand that predict the targets' ids.
struct Batch {
  model::Inputs inputs;
  std::vector<std::int64_t> places, ids;
};

at::Tensor padded(const std::vector<std::vector<std::int32_t>>& rows, std::int64_t filler) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  const at::Tensor ids = at::full({std::ssize(rows), static_cast<std::int64_t>(width)}, filler, at::kLong);
  auto* to = ids.data_ptr<std::int64_t>();
  for (const auto& row : rows) std::copy(row.begin(), row.end(), std::exchange(to, to + width));
  return ids;
}

Batch batch_of(const std::vector<const GivenTarget*>& targets, const spec::Architecture& shape) {
  const bool has_encoder = shape.type == spec::ModelType::encoder_decoder;
  const auto start = static_cast<std::int32_t>(shape.vocabulary.start);
  std::vector<std::vector<std::int32_t>> sources, fed;
  std::vector<std::int64_t> lengths;
  for (const GivenTarget* const given : targets) {
    lengths.push_back(std::ssize(given->source));
    if (has_encoder) sources.push_back(given->source);
    fed.push_back(has_encoder ? std::vector{start} : given->source);
    fed.back().insert(fed.back().end(), given->target.begin(), given->target.end() - 1);
  }
  Batch batch;
  batch.inputs.target_in = padded(fed, start);
  if (has_encoder) {
    batch.inputs.source = padded(sources, start);
    batch.inputs.source_lengths = at::tensor(lengths, at::kLong);
  }
  if (shape.prefix_lm) {
    batch.inputs.prompts = at::zeros(batch.inputs.target_in.sizes(), at::kLong);
    for (std::int64_t row = 0; row < std::ssize(lengths); ++row) {
      const std::int64_t end = lengths[static_cast<std::size_t>(row)];
      batch.inputs.prompts.select(0, row).narrow(0, 0, end).fill_(end);
    }
  }
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const auto& target = targets[row]->target;
    const std::int64_t end = static_cast<std::int64_t>(row) * batch.inputs.target_in.size(1) + std::ssize(fed[row]);
    for (std::int64_t place = end - std::ssize(target); place < end; ++place) batch.places.push_back(place);
    batch.ids.insert(batch.ids.end(), target.begin(), target.end());
  }
  return batch;
}

/// log p of each id of the batch, and whether it is the most probable one.
std::vector<std::pair<float, bool>> score(model::Inference& model, const Batch& batch) {
  const c10::Device device = model.device();
  const at::Tensor outputs = model.read_targets(batch.inputs).flatten(0, 1);
  const at::Tensor places = at::tensor(batch.places, at::kLong).to(device),
                   ids = at::tensor(batch.ids, at::kLong).to(device);
  std::vector<std::pair<float, bool>> scores;
  for (std::int64_t first = 0; first < places.size(0); first += logits_rows) {
    const std::int64_t count = std::min(logits_rows, places.size(0) - first);
    const at::Tensor logits = model.logits(outputs.index_select(0, places.narrow(0, first, count)));
    const auto [log_p, best] = kernels::top_log_probabilities(logits, model.architecture().vocabulary.pieces, 1);
    const at::Tensor id = ids.narrow(0, first, count).unsqueeze(1);
    const at::Tensor found = (log_p + (logits.gather(1, id) - logits.gather(1, best))).cpu(), top = best.cpu();
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = found.const_data_ptr<float>()[i];
      if (std::isnan(value)) {
        throw_claim(Fault::numeric, "the model gives NaN as the score of a piece", "the model", "finite scores", "NaN",
                    "use another checkpoint");
      }
      scores.emplace_back(value,
                          top.const_data_ptr<std::int64_t>()[i] == batch.ids[static_cast<std::size_t>(first + i)]);
    }
  }
  return scores;
}

/// Calls work(batch, indices) for all targets that are not empty: longest first, by neighbours of like length.
template <class Work>
void in_batches(const model::Inference& model, const std::vector<GivenTarget>& targets, std::int64_t batch_elements,
                Work&& work) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i].target.empty()) order.push_back(i);
  }
  const auto length = [&](std::size_t i) { return std::ssize(targets[i].source) + std::ssize(targets[i].target); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  for (std::span<const std::size_t> rest = order; !rest.empty();) {
    const std::int64_t fit = std::max<std::int64_t>(1, batch_elements / length(rest.front()));
    const auto together = rest.first(std::min(static_cast<std::size_t>(fit), rest.size()));
    rest = rest.subspan(together.size());
    std::vector<const GivenTarget*> given;
    for (const std::size_t i : together) given.push_back(&targets[i]);
    Batch batch = batch_of(given, model.architecture());
    for (at::Tensor* tensor :
         {&batch.inputs.source, &batch.inputs.source_lengths, &batch.inputs.target_in, &batch.inputs.prompts}) {
      if (tensor->defined()) *tensor = tensor->to(model.device());
    }
    work(batch, together);
  }
}

}  // namespace

std::vector<Likelihood> likelihoods(model::Inference& model, const std::vector<GivenTarget>& targets,
                                    std::int64_t batch_elements) {
  const c10::InferenceMode guard;
  std::vector<Likelihood> out(targets.size());
  in_batches(model, targets, batch_elements, [&](const Batch& batch, std::span<const std::size_t> together) {
    const auto scores = score(model, batch);
    auto one = scores.begin();
    for (const std::size_t i : together) {
      for (std::size_t k = 0; k < targets[i].target.size(); ++k, ++one) {
        out[i].log_p.push_back(one->first);
        out[i].is_greedy = out[i].is_greedy && one->second;
      }
    }
  });
  return out;
}

std::vector<std::vector<std::int64_t>> alignments(model::Inference& model, const std::vector<GivenTarget>& targets,
                                                  std::int64_t layer, std::int64_t batch_elements) {
  const c10::InferenceMode guard;
  std::vector<std::vector<std::int64_t>> out(targets.size());
  in_batches(model, targets, batch_elements, [&](const Batch& batch, std::span<const std::size_t> together) {
    const at::Tensor weights = model.cross_attention(batch.inputs, layer).cpu().contiguous();
    const float* row = weights.const_data_ptr<float>();
    for (const std::size_t i : together) {
      const std::int64_t pieces = std::ssize(targets[i].source) - 1;
      for (std::int64_t t = 0; pieces > 0 && t < std::ssize(targets[i].target); ++t) {
        const float* const weight = row + t * weights.size(2);
        out[i].push_back(std::max_element(weight, weight + pieces) - weight);
      }
      row += weights.stride(0);
    }
  });
  return out;
}

namespace {

/// The two texts of a line.
std::pair<std::string_view, std::string_view> fields_of(const TextPart& part, std::size_t i) {
  const std::string_view line = part.lines[i];
  if (!part.targets.empty()) return {line, part.targets[i]};
  const std::size_t tab = line.find('\t'), tabs = static_cast<std::size_t>(std::count(line.begin(), line.end(), '\t'));
  if (tabs != 1) {
    throw_error(Fault::data, fmt::format("line {} of the text to score", part.first + i + 1),
                "a source and a target with one tab between", fmt::format("{} tabs", tabs),
                "give the targets in a file of their own with --target");
  }
  return {line.substr(0, tab), line.substr(tab + 1)};
}

GivenTarget given_target(const data::Tokenizer& tokenizer, bool has_encoder, std::string_view source,
                         std::string_view target) {
  const auto eos = static_cast<std::int32_t>(tokenizer.vocabulary().eos);
  if (has_encoder) {
    GivenTarget given{tokenizer.encode(source, data::Side::source), tokenizer.encode(target)};
    given.source.push_back(eos);
    given.target.push_back(eos);
    return given;
  }
  const std::vector<std::int32_t> context = tokenizer.encode(source.substr(0, source.find_last_not_of(' ') + 1)),
                                  whole = tokenizer.encode(std::string(source).append(target));
  const auto border = static_cast<std::ptrdiff_t>(std::min(context.size(), whole.size()));
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  GivenTarget given{{}, {whole.begin() + border, whole.end()}};
  // A model without bos reads a context as it is, and only an empty one begins with the start id.
  if (vocabulary.bos || border == 0)
    given.source.push_back(static_cast<std::int32_t>(vocabulary.bos.value_or(vocabulary.start)));
  given.source.insert(given.source.end(), whole.begin(), whole.begin() + border);
  return given;
}

Translation printed(const Likelihood& likelihood, bool token_scores) {
  const auto& log_p = likelihood.log_p;
  const double sum = std::accumulate(log_p.begin(), log_p.end(), 0.0);
  const double mean = log_p.empty() ? 0 : sum / static_cast<double>(log_p.size());
  std::string text = fmt::format("{:.6f}\t{:.6f}\t{}\t{}", sum, mean, log_p.size(), likelihood.is_greedy ? 1 : 0);
  if (token_scores) text += fmt::format("\t{:.6f}", fmt::join(log_p, " "));
  return {.text = std::move(text), .score = mean, .log_probability = sum};
}

}  // namespace

std::vector<Translation> score_lines(const comm::Communicator& world, model::Inference& model,
                                     const data::Tokenizer& tokenizer, const TextPart& part,
                                     const ScoreOptions& options) {
  const spec::Architecture& shape = model.architecture();
  const bool has_encoder = shape.type == spec::ModelType::encoder_decoder;
  const std::optional<std::int64_t> layer = alignment_layer(shape, options.alignment);
  std::vector<GivenTarget> given;
  for (std::size_t i = 0; i < part.lines.size(); ++i) {
    const auto [source, target] = fields_of(part, i);
    given.push_back(options.escapes ? given_target(tokenizer, has_encoder, unescaped(source), unescaped(target))
                                    : given_target(tokenizer, has_encoder, source, target));
    const std::int64_t on_source = std::ssize(given[i].source), on_target = std::ssize(given[i].target);
    const std::int64_t positions = has_encoder ? std::max(on_source, on_target) : on_source + on_target - 1;
    if (positions > shape.max_positions) {
      throw_error(Fault::data, fmt::format("line {} of the text to score", part.first + i + 1),
                  fmt::format("at most {} pieces (model.max_positions)", shape.max_positions),
                  std::to_string(positions), "split the line");
    }
  }
  std::vector<std::size_t> order(given.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return given[a].source.size() + given[a].target.size() > given[b].source.size() + given[b].target.size();
  });
  return share_out(world, given.size(), order, [&](const std::vector<std::size_t>& lines) {
    std::vector<GivenTarget> mine;
    for (const std::size_t line : lines) mine.push_back(std::move(given[line]));
    std::vector<Translation> translations;
    for (const Likelihood& likelihood : likelihoods(model, mine))
      translations.push_back(printed(likelihood, options.token_scores));
    if (!layer) return translations;
    const auto aligned = alignments(model, mine, *layer);
    for (std::size_t i = 0; i < mine.size(); ++i)  // all but EOS
      (translations[i].text += '\t') += alignment_text(aligned[i], 0, mine[i].target.size() - 1);
    return translations;
  });
}

}  // namespace argosy::decode
