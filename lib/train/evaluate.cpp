#include "train/evaluate.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numbers>
#include <string_view>

#include "comm/message.hpp"
#include "core/error.hpp"
#include "data/pool_source.hpp"
#include "data/text_files.hpp"
#include "train/runner.hpp"

namespace argosy::train {
namespace {

/// Which of the ranks that evaluate a set this one is, and how many they are.
struct Share {
  std::optional<int> rank;  // absent: it is none of them
  int world = 1;
};
Share share_of(const EvaluationSet& set, const comm::Context& context) {
  const int rank = context.topology.canonical_rank();
  if (set.ranks.empty()) return {rank, context.topology.world_size()};
  const auto found = std::ranges::lower_bound(set.ranks, rank);
  const int world = narrow<int>(std::ssize(set.ranks));
  if (found == set.ranks.end() || *found != rank) return {std::nullopt, world};
  return {narrow<int>(found - set.ranks.begin()), world};
}

/// The validation part of the token shards, dealt to the ranks of the set like the micro-batches of steps. only: the
/// number of the corpus that it is of; else of all.
void read_split(EvaluationSet& set, const comm::Context& context, const plan::RunConfig& config,
                const data::Tokenizer& tokenizer, data::StepSizes sizes, std::int64_t steps,
                std::span<const data::CountedCorpus> corpora, std::optional<std::size_t> only) {
  data::DataConfig data = config.data;
  for (data::CorpusConfig& corpus : data.corpora) {  // all of them, whatever the step
    corpus.start = {};
    corpus.end.reset();
  }
  const auto shards = data::TokenShards::open(context.files, data, tokenizer, data::Part::validation, corpora, only);
  if (shards.has_source()) shards.require_at_most(config.model.max_positions);
  if (shards.size() == 0)
    throw_error(Fault::data, set.name, "a validation part with examples (data.split)", "none",
                "raise data.split.validation, or set validation.sets");
  const Share share = share_of(set, context);
  sizes.micro_batches = share.world;
  sizes.accumulation = 1;
  sizes.global_size = sizes.micro_size * sizes.micro_batches;
  sizes.idle_share = 0;
  const data::PoolMaker maker(
      shards, tokenizer.vocabulary(),
      {.seed = config.seed, .sizes = sizes, .batch = plan::batch_of(config), .temperature = 1.0, .draws = false});
  std::int64_t taken = 0;
  for (data::PoolBegin at; share.rank && at.epoch == 0 && taken < steps;) {  // all of it, once
    const std::unique_ptr<data::PoolSource> pool = maker.make(at);
    for (std::int64_t step = 0; step < pool->steps() && taken < steps; ++step, ++taken)
      set.batches.push_back(pool->assemble(step, *share.rank));
    at = pool->next();
  }
}

/// Throws Error{data} naming the first line of the set, on either side, that is longer than the model has positions.
void require_at_most(std::int64_t positions, const EvaluationSet& set, const plan::ValidationSet& files) {
  for (const data::Batch& batch : set.batches) {
    for (std::size_t row = 0; row < batch.examples.size(); ++row) {
      const bool is_source = batch.source_lengths[row] > positions;
      if (!is_source && batch.target_lengths[row] <= positions) continue;
      throw_error(Fault::data,
                  fmt::format("{}:{}", (is_source || !files.target ? files.source : *files.target).items.front(),
                              batch.examples[row] + 1),
                  fmt::format("at most {} pieces (model.max_positions)", positions),
                  std::to_string(is_source ? batch.source_lengths[row] : batch.target_lengths[row]),
                  "raise model.max_positions, or shorten the line");
    }
  }
}

/// Of each set one that no other has: the file name of its source; where sets have the same, with that of the target;
/// then with folders; then with a number.
std::vector<std::string> names_of(const std::vector<plan::ValidationSet>& sets) {
  const auto file = [](const config::StringOrList& names) { return Path(names.items.front()).filename().string(); };
  std::vector<std::string> names;
  names.reserve(sets.size());
  for (const plan::ValidationSet& set : sets) names.push_back(file(set.source));
  const auto lengthen = [&](const auto& longer) {
    const std::vector<std::string> before = names;
    for (std::size_t i = 0; i < sets.size(); ++i)
      if (std::ranges::count(before, before[i]) > 1) names[i] = longer(i);
  };
  const auto sides = [&](std::size_t i, const auto& part) {
    return part(sets[i].source) + (sets[i].target ? "-" + part(*sets[i].target) : "");
  };
  lengthen([&](std::size_t i) { return sides(i, file); });
  lengthen(
      [&](std::size_t i) { return sides(i, [](const config::StringOrList& each) { return each.items.front(); }); });
  lengthen([&](std::size_t i) { return fmt::format("{}#{}", names[i], i + 1); });
  return names;
}

}  // namespace

std::vector<EvaluationSet> evaluation_sets(const comm::Context& context, const plan::RunConfig& config,
                                           const data::Tokenizer& tokenizer, const data::StepSizes& sizes,
                                           std::span<const data::CountedCorpus> corpora,
                                           const std::vector<std::vector<int>>& ranks) {
  const bool language_model = plan::is_language_model(config);
  const std::int64_t all = std::numeric_limits<std::int64_t>::max();
  const std::int64_t steps = config.validation.steps.value_or(language_model ? 25 : all);
  const data::UnpackSettings unpack =
      data::unpack_settings(config.data, data::cache_folder(config.data, config.run_dir));
  std::vector<EvaluationSet> sets;
  const std::vector<std::string> names = names_of(config.validation.sets);
  for (const plan::ValidationSet& wanted : config.validation.sets) {
    EvaluationSet& set = sets.emplace_back();
    set.name = names[sets.size() - 1];
    if (!ranks.empty()) set.ranks = ranks[sets.size() - 1];
    const Share share = share_of(set, context);
    const data::TextRules rules = plan::rules_of(wanted, config);
    const data::TextFiles texts =
        data::find_text_files(context.files, wanted.source, wanted.target, "validation set " + set.name);
    if (language_model) {
      const std::vector<data::Record> records = data::read_records(context.files, rules, texts, unpack).records;
      const std::int64_t rows = config.batch.unit == data::BatchUnit::examples
                                    ? sizes.micro_size
                                    : std::max<std::int64_t>(1, sizes.micro_size / config.batch.sequence_length);
      set.batches =
          data::lm_batches_of(tokenizer, records, config.batch.sequence_length, rows, *share.rank, share.world);
    } else {
      set.text = data::read_parallel_text(context.files, rules, texts, unpack);
      set.text.prefixes = plan::prefixes_of(wanted, config.data).value();
      for (const data::CorpusConfig& corpus : config.data.corpora)
        if (corpus.name == wanted.corpus) set.languages = corpus.languages;
      if (share.rank)
        set.batches = data::batches_of(tokenizer.of(set.languages), set.text, config.batch.unit, sizes.micro_size,
                                       *share.rank, share.world);
      require_at_most(config.model.max_positions, set, wanted);
    }
    if (static_cast<std::int64_t>(set.batches.size()) > steps) set.batches.resize(static_cast<std::size_t>(steps));
  }
  if (!sets.empty() || !config.data.split) return sets;
  const bool by_task = !spec::is_plain(config.model);  // whose batches take one route each
  sets.resize(by_task ? config.data.corpora.size() : 1);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    EvaluationSet& set = sets[i];
    set.name = by_task ? fmt::format("validation.{}", config.data.corpora[i].name) : "validation";
    if (by_task) set.languages = config.data.corpora[i].languages;
    if (!ranks.empty()) set.ranks = ranks[i];
    read_split(set, context, config, tokenizer, sizes, steps, corpora, by_task ? std::optional(i) : std::nullopt);
  }
  return sets;
}

std::vector<std::uint32_t> routes_of_sets(const plan::RunConfig& config, const spec::ModelSpec& spec) {
  std::vector<std::uint32_t> routes;
  if (spec.sharing.tasks.empty()) return routes;
  const std::vector<std::string> names = names_of(config.validation.sets);
  if (names.empty() && config.data.split)
    for (const data::CorpusConfig& corpus : config.data.corpora)
      routes.push_back(narrow<std::uint32_t>(spec.route_of.at(corpus.name)));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string task = config.validation.sets[i].corpus.value_or("");
    const auto route = spec.route_of.find(task);
    if (route == spec.route_of.end())
      throw_error(Fault::config, fmt::format("validation.sets, {}", names[i]),
                  "the name of a task of the model (corpus): " + spec::text_of(spec.sharing.tasks),
                  task.empty() ? "none" : task, "correct corpus, or leave this set out");
    routes.push_back(narrow<std::uint32_t>(route->second));
  }
  return routes;
}

void set_routes(std::vector<EvaluationSet>& sets, const plan::RunConfig& config, const spec::ModelSpec& spec) {
  const std::vector<std::uint32_t> routes = routes_of_sets(config, spec);
  for (std::size_t i = 0; i < routes.size(); ++i) {
    sets[i].route = routes[i];
    for (data::Batch& batch : sets[i].batches) batch.route = routes[i];
  }
}

std::vector<telemetry::Sample> samples_of(const EvaluationSet& set, const std::vector<std::string>& translations,
                                          std::int64_t count) {
  std::vector<telemetry::Sample> samples(std::min(translations.size(), static_cast<std::size_t>(count)));
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i] = {set.text.source[i], set.text.target[i], translations[i]};
  return samples;
}

decode::Repetition repetition_of(const data::Tokenizer& tokenizer, std::span<const std::string> texts) {
  std::vector<std::vector<std::int32_t>> pieces(std::min(texts.size(), static_cast<std::size_t>(lines_for_collapse)));
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = tokenizer.encode(texts[i]);
  return decode::repetition_in(pieces);
}

double Evaluation::loss() const { return nll_sum / static_cast<double>(tgt_tokens); }
double Evaluation::perplexity() const { return std::exp(loss()); }
double Evaluation::bits_per_byte() const { return nll_sum / std::numbers::ln2 / static_cast<double>(bytes); }

double Evaluation::value_of(plan::Metric metric) const {
  switch (metric) {
    case plan::Metric::loss:
      return loss();
    case plan::Metric::perplexity:
      return perplexity();
    case plan::Metric::bits_per_byte:
      return bits_per_byte();
    case plan::Metric::bleu:
      return scores.value().bleu;
    case plan::Metric::chrf:
      return scores.value().chrf;
    case plan::Metric::ter:
      return scores.value().ter;
  }
  return 0;
}

namespace {

/// The texts of translations that some ranks have, on all ranks.
void share_texts(const comm::Communicator& world, bool has_them, std::vector<decode::Translation>& translations) {
  const int root = comm::lowest_rank(world, has_them).value_or(0);
  std::vector<std::string> texts;
  for (const decode::Translation& translation : translations) texts.push_back(translation.text);
  texts = comm::from_message<std::vector<std::string>>(world.broadcast(comm::to_message(texts), root));
  translations.resize(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) translations[i].text = std::move(texts[i]);
}

}  // namespace

std::optional<Evaluation> evaluate(const comm::Context& context, const EvaluatedModel& model,
                                   const data::Tokenizer& tokenizers, const EvaluationSet& set,
                                   const std::vector<plan::Metric>& metrics, std::int64_t lines) {
  constexpr std::size_t lines_before_asking = 128;  // of a rank: enough that few of its rows are empty
  const data::Tokenizer tokenizer = tokenizers.of(set.languages);
  const bool by_bytes = std::ranges::count(metrics, plan::Metric::bits_per_byte) > 0;
  std::array<double, 3> sums{};
  std::array<std::int64_t, 1> most{std::ssize(set.batches)};
  context.world.all_reduce(std::span<std::int64_t>{most}, comm::Reduce::max);
  const auto rounds = static_cast<std::size_t>(most[0]);
  data::Batch nothing;
  nothing.route = set.route;
  for (std::size_t i = 0; i < rounds; ++i) {
    if (model.stops && model.stops(context.world)) return std::nullopt;
    const data::Batch& batch = i < set.batches.size() ? set.batches[i] : nothing;
    sums[0] += model.nll_of(batch);
    sums[1] += static_cast<double>(batch.tgt_tokens);
    if (by_bytes) sums[2] += static_cast<double>(data::label_bytes(tokenizer, batch));
  }
  context.world.all_reduce(std::span<double>{sums});
  Evaluation evaluation{.nll_sum = sums[0],
                        .tgt_tokens = static_cast<std::int64_t>(sums[1]),
                        .bytes = static_cast<std::int64_t>(sums[2]),
                        .scores = {},
                        .translations = {}};
  if (evaluation.tgt_tokens == 0)
    throw_error(Fault::data, set.name, "a validation set with tokens to predict", "none",
                "set another file in validation.sets");
  const bool scored = std::ranges::any_of(metrics, plan::needs_translations);
  std::vector<std::string> sources = set.text.source;
  if (!scored) sources.resize(std::min(sources.size(), static_cast<std::size_t>(lines)));
  if (!scored && sources.empty()) return evaluation;
  std::vector<decode::Translation> translations;
  bool stopped = false;
  const auto translate = [&] {
    model.with_whole(set.route, [&](model::Model& whole) {
      model::Inference inference(whole);
      decode::TranslateOptions options;
      options.source_prefix = set.text.prefixes.source;
      options.target_prefix = set.text.prefixes.target;
      options.omit_prefix = true;
      const comm::Communicator& ranks = set.ranks.empty() ? context.world : model.ranks_of(set.route);
      const std::size_t at_once = lines_before_asking * static_cast<std::size_t>(ranks.size());
      for (std::span<std::string> left{sources}; !left.empty() && !stopped;) {
        const std::span<std::string> some = left.first(std::min(at_once, left.size()));
        left = left.subspan(some.size());
        std::ranges::move(decode::translate_lines(ranks, inference, tokenizer, {{some.begin(), some.end()}}, options),
                          std::back_inserter(translations));
        stopped = !left.empty() && model.stops && model.stops(ranks);
      }
    });
  };
  if (set.ranks.empty()) {
    translate();
  } else {
    comm::agree(context.world, translate);
    stopped = comm::any_of(context.world, stopped);
    if (!stopped) share_texts(context.world, !translations.empty(), translations);
  }
  if (stopped) return std::nullopt;
  if (scored) evaluation.scores = decode::score_translations(context.world, translations, set.text.target);
  evaluation.translations.reserve(translations.size());
  for (decode::Translation& translation : translations) evaluation.translations.push_back(std::move(translation.text));
  return evaluation;
}

void with_route(model::Model& whole, std::size_t route, const UseModel& use) {
  if (whole.spec().routes.size() == 1) return use(whole);
  const spec::RouteModel plain = spec::model_of_route(whole.spec(), route);
  std::map<std::string_view, at::Tensor> weights;
  for (model::Unit& unit : whole.units())
    for (const model::Parameter& parameter : unit.parameters()) weights[parameter.name] = parameter.weight;
  model::Model model(plain.spec, partition::Layout{});
  for (model::Unit& unit : model.units())
    for (model::Parameter& parameter : unit.parameters())
      parameter.weight = weights.at(plain.stored.at(parameter.name));
  use(model);
}

double nll_of(const model::Model& model, const data::Batch& batch) {
  if (batch.empty()) return 0;
  const c10::AutoGradMode no_recording(false);
  const model::Inputs inputs = inputs_of(batch, c10::kCPU);
  model::Pass pass;
  model::State state;
  for (const std::size_t visit : model.spec().routes[batch.route])
    state = model.visits()[visit].forward(state, inputs, pass);
  return pass.nll_sum.item<double>();
}

}  // namespace argosy::train
