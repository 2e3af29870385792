#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json/serialize.hpp>

#include "core/hash.hpp"
#include "data/text_files.hpp"
#include "decode/load.hpp"
#include "kernels/tensor_memory.hpp"
#include "soup_app.hpp"
#include "train/evaluate.hpp"
#include "train/run_state.hpp"

/// apps/soup with LibTorch, for --validate: losses are the trainer's, unsmoothed, over the configuration's validation
/// sets. Every rank holds a whole model in fp32 and its share of the sets.
namespace {

using namespace argosy;

/// Evaluates one checkpoint after another on the same sets. The set named `reported`, if any, decides nothing.
class SetEvaluator {
 public:
  SetEvaluator(comm::Context& context, plan::RunConfig config, std::string reported)
      : context_(context), config_(std::move(config)), reported_(std::move(reported)) {}

  /// On the set named `reported`, or on all others.
  [[nodiscard]] soup::ValidationLoss loss_of(const checkpoint::Reader& checkpoint, bool reported) {
    std::optional<decode::LoadedModel> loaded;
    const auto texts =
        data::online_corpora(context_.world, context_.files, context_.log, config_.data, config_.run_dir);
    comm::agree(context_.world, [&] {
      loaded = decode::load_model(model::whole_model(checkpoint), c10::kCPU);
      if (sets_.empty()) open_sets(checkpoint, loaded->tokenizer, texts);  // inputs share a tokenizer
      train::set_routes(sets_, config_, loaded->model->spec());
    });
    model::Model& model = *loaded->model;
    std::vector<double> by_batch;
    const auto nll_of = [&](const data::Batch& batch) {
      const double sum = train::nll_of(model, batch);
      if (!batch.empty()) by_batch.push_back(sum);
      return sum;
    };
    double nll_sum = 0, tgt_tokens = 0;
    for (const train::EvaluationSet& set : sets_) {
      if ((set.name == reported_) != reported) continue;
      const auto evaluation = *train::evaluate(
          context_,
          {.nll_of = nll_of,
           .with_whole = [&](std::size_t route, const train::UseModel& use) { train::with_route(model, route, use); }},
          loaded->tokenizer, set, {plan::Metric::loss});
      nll_sum += evaluation.nll_sum;
      tgt_tokens += static_cast<double>(evaluation.tgt_tokens);
    }
    soup::ValidationLoss loss{.loss = nll_sum / tgt_tokens};
    for (const std::vector<double>& of_rank : context_.world.all_gather(by_batch))
      loss.by_batch.insert(loss.by_batch.end(), of_rank.begin(), of_rank.end());
    return loss;
  }

 private:
  void open_sets(const checkpoint::Reader& checkpoint, const data::Tokenizer& tokenizer, const auto& texts) {
    sets_ = train::evaluation_sets(context_, config_, tokenizer,
                                   train::sizes_with(config_.batch, checkpoint, context_.world.size()), texts);
    std::vector<std::string> names;
    for (const train::EvaluationSet& set : sets_) names.push_back(set.name);
    const bool known = reported_.empty() || std::ranges::count(names, reported_) > 0;
    if (known && names.size() > (reported_.empty() ? 0U : 1U)) return;
    throw_error(Fault::config, "the configuration given to --validate",
                reported_.empty() ? "validation.sets, or a validation part of data.split"
                : known           ? "a validation set besides " + reported_ + " to decide by"
                                  : "the validation set " + reported_,
                names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                known ? "add held-out text to validation.sets" : "give one of these with --report");
  }

  comm::Context& context_;
  plan::RunConfig config_;
  std::string reported_;
  std::vector<train::EvaluationSet> sets_;
};

/// Losses depend on the configuration and on the text of the sets.
std::string identity_of(comm::Context& context, const plan::RunConfig& config) {
  Hasher hasher;
  comm::at_root(context.world, [&] {
    hasher.update(boost::json::serialize(config::to_json(config)));
    for (const plan::ValidationSet& set : config.validation.sets) {
      const data::TextFiles texts = data::find_text_files(context.files, set.source, set.target, "validation.sets");
      for (const std::vector<Path>* side : {&texts.source, &texts.target})
        for (const Path& path : *side) hasher.update(context.files.read_text(path));
    }
  });
  return context.world.broadcast(hasher.digest().hex());
}

}  // namespace

int main(int argc, char** argv) {
  return app::run_soup(
      argc, argv,
      [](comm::Context& context, const config::Options& options, const std::string& reported) -> soup::Evaluator {
        kernels::keep_tensor_memory();
        const plan::RunConfig config = *app::load_config<plan::RunConfig>(options, context);
        const auto sets = std::make_shared<SetEvaluator>(context, config, reported);
        soup::Evaluator evaluator{
            .identity = identity_of(context, config) + reported,
            .evaluate = [sets](const checkpoint::Reader& checkpoint) { return sets->loss_of(checkpoint, false); }};
        if (!reported.empty())
          evaluator.report = [sets](const auto& checkpoint) { return sets->loss_of(checkpoint, true).loss; };
        return evaluator;
      });
}
