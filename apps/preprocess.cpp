#include "data/preprocess.hpp"

#include <boost/json.hpp>

#include "app.hpp"
#include "data/show.hpp"
#include "data/tokenizer_files.hpp"
#include "data/verify.hpp"
#include "plan/run_config.hpp"

namespace {

using namespace argosy;

constexpr const char* examples =
    "  apps/preprocess configs/quickstart.json                                   tokenizer and token shards, one rank\n"
    "  apps/preprocess --show 3 configs/quickstart.json                          what transforms make of 3 examples\n"
    "  mpiexec -n 8 apps/preprocess configs/mt_base.json --set data.workers=4    8 ranks, 4 threads each: same bytes\n";

boost::json::object figures_of(const data::PreprocessReport& report) {
  boost::json::array corpora;
  for (const data::ShardIndex::Corpus& corpus : report.index.corpora) {
    corpora.push_back({{"name", corpus.name},
                       {"examples", corpus.examples()},
                       {"dropped", boost::json::value_from(corpus.dropped)},
                       {"src_tokens", corpus.src_tokens},
                       {"tgt_tokens", corpus.tgt_tokens},
                       {"unknown", corpus.unknown}});
  }
  return {{"corpora", std::move(corpora)},
          {"pieces", report.index.pieces},
          {"tokenizer", report.index.tokenizer.hex()},
          {"tokenizer_trained", report.tokenizer_trained},
          {"shards_written", report.shards_written},
          {"shards_kept", report.shards_kept}};
}

}  // namespace

int main(int argc, char** argv) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    config::Options options;
    CLI::App app{
        "Trains the tokenizer if the configuration asks for it, and turns text into token shards. A rerun resumes."};
    app::add_config_options(app, options);
    bool retrain_tokenizer = false;
    app.add_flag(
        "--retrain-tokenizer", retrain_tokenizer,
        "replace a tokenizer that was trained on other text or with other settings; checkpoints that were trained "
        "with it can then no longer be used");
    bool verify = false;
    app.add_flag("--verify", verify, "read the token shards whole and check them; nothing is written");
    std::int64_t shown = 0;
    app.add_option(
           "--show", shown,
           "print the first N examples of each corpus before and after each transform, by draws as training makes them "
           "anew in each epoch, and why examples are left out; writes no token shards. The tokenizer must exist")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000}).description(""));
    if (!app::parse(app, argc, argv, examples, context)) return Exit::ok;
    const auto config = app::load_config<plan::RunConfig>(options, context);
    if (!config) return Exit::ok;
    context.world.configure(config->comm);

    const data::PreprocessSettings settings{.data = config->data,
                                            .vocabulary = spec::vocabulary_rule(config->model),
                                            .cache = data::cache_folder(config->data, config->run_dir),
                                            .retrain_tokenizer = retrain_tokenizer};
    if (shown > 0) {
      const data::UnpackSettings unpack = data::unpack_settings(config->data, settings.cache);
      const std::vector<data::CountedCorpus> corpora =
          data::count_corpora(context.world, context.files, context.log, config->data,
                              {.cache = settings.cache / "count", .unpack = unpack});
      comm::at_root(context.world, [&] {
        const auto tokenizer = data::read_tokenizer(context.files, config->data, settings.vocabulary);
        context.print(data::show_examples(context.files, config->data, corpora, tokenizer, shown, config->seed));
      });
      return Exit::ok;
    }
    const double begin_s = context.clock.monotonic_s();
    if (verify) {
      const auto tokenizer = data::read_tokenizer(context.files, config->data, settings.vocabulary);
      const data::VerifyReport report =
          data::verify_shards(context.world, context.files, context.log, config->data, tokenizer);
      context.log.info("{} token shards with {} examples are whole", report.shards, report.examples);
      context.print_result("preprocess", {{"verified_shards", report.shards},
                                          {"examples", report.examples},
                                          {"bytes", report.bytes},
                                          {"elapsed_s", context.clock.monotonic_s() - begin_s}});
      return Exit::ok;
    }
    const data::PreprocessReport report = data::run_preprocess(context.world, context.files, context.log, settings);
    boost::json::object figures = figures_of(report);
    figures["elapsed_s"] = context.clock.monotonic_s() - begin_s;
    context.print_result("preprocess", std::move(figures));
    return Exit::ok;
  });
}
