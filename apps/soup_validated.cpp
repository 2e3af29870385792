#include <c10/core/GradMode.h>

#include <boost/json/serialize.hpp>

#include "core/hash.hpp"
#include "decode/load.hpp"
#include "kernels/memory.hpp"
#include "soup_app.hpp"
#include "train/evaluate.hpp"
#include "train/runner.hpp"

/// apps/soup --validate: soups judged by the trainer's evaluation, unsmoothed loss over the configuration's validation
/// sets. Every rank holds a whole model in fp32, and its share of the sets.
namespace {

using namespace argosy;

/// Judges one checkpoint after another on the same sets.
class Judge {
 public:
  Judge(comm::Context& context, train::RunConfig config) : context_(context), config_(std::move(config)) {}

  [[nodiscard]] double loss_of(const checkpoint::Reader& checkpoint) {
    std::optional<decode::LoadedModel> loaded;
    comm::agree(context_.world, [&] {
      loaded = decode::load_model(checkpoint, c10::kCPU);
      if (!sets_.empty()) return;  // ingredients share a tokenizer
      sets_ = train::evaluation_sets(context_, config_, loaded->tokenizer,
                                     data::resolve_sizes(config_.batch, context_.world.size()));
      if (!sets_.empty()) return;
      throw Error{Fault::config,
                  {.wanted = "validation.sets, or a validation part of data.split",
                   .got = "neither",
                   .where = "the configuration given to --validate",
                   .remedy = "name some held-out text"}};
    });
    model::Model& model = *loaded->model;
    const auto nll_of = [&](const data::Batch& batch) { return nll(model, batch); };
    double nll_sum = 0, tgt_tokens = 0;
    for (const train::EvaluationSet& set : sets_) {
      const train::Evaluation evaluation =
          train::evaluate(context_, nll_of, model, loaded->tokenizer, set, {train::Metric::loss});
      nll_sum += evaluation.nll_sum;
      tgt_tokens += static_cast<double>(evaluation.tgt_tokens);
    }
    return nll_sum / tgt_tokens;
  }

 private:
  static double nll(const model::Model& model, const data::Batch& batch) {
    if (batch.empty()) return 0;
    const c10::AutoGradMode no_recording(false);
    const model::Inputs inputs = train::inputs_of(batch, c10::kCPU);
    model::Pass pass;
    model::State state;
    for (const model::Visit& visit : model.visits()) state = visit.forward(state, inputs, pass);
    return pass.nll_sum.item<double>();
  }

  comm::Context& context_;
  train::RunConfig config_;
  std::vector<train::EvaluationSet> sets_;
};

/// Losses depend on the configuration and on the text of the sets.
std::string identity_of(comm::Context& context, const train::RunConfig& config) {
  Hasher hasher;
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    hasher.update(boost::json::serialize(config::to_json(config)));
    for (const train::ValidationSet& set : config.validation.sets) {
      hasher.update(context.files.read_text(set.source));
      if (set.target) hasher.update(context.files.read_text(*set.target));
    }
  });
  return context.world.broadcast(hasher.digest().hex());
}

}  // namespace

int main(int argc, char** argv) {
  return app::run_soup(argc, argv, [](comm::Context& context, const config::Options& options) -> soup::Evaluator {
    kernels::keep_freed_memory();
    const train::RunConfig config = *app::load_config<train::RunConfig>(options, context);
    const auto judge = std::make_shared<Judge>(context, config);
    return {.identity = identity_of(context, config),
            .loss_of = [judge](const checkpoint::Reader& checkpoint) { return judge->loss_of(checkpoint); }};
  });
}
