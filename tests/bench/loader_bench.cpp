// How fast one worker makes batches of token shards that are there. Prints one JSON object. scripts/bench/loader runs
// it.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <iostream>

#include "comm/environment.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "data/loader.hpp"
#include "data/tokenizer_files.hpp"
#include "plan/run_config.hpp"

/// loader CONFIG SECONDS: as rank 0 of one.
int main(int argc, char** argv) {
  using namespace argosy;
  if (argc != 3) {
    std::cerr << "loader: CONFIG and SECONDS are missing\n";
    return 2;
  }
  try {
    const Files files = Files::system();
    const auto config =
        config::from_document<plan::RunConfig>(config::Document::parse(config::read_source(files, argv[1]), argv[1]));
    const auto tokenizer = data::read_tokenizer(files, config.data, spec::vocabulary_rule(config.model));
    const comm::Environment mpi(argc, argv);
    const auto corpora = data::online_corpora(mpi.world(), files, Log{0, LogLevel::warn}, config.data, config.run_dir);
    const auto shards = data::TokenShards::open(files, config.data, tokenizer, data::Part::train, corpora);
    data::Loader loader{shards,
                        tokenizer.vocabulary(),
                        {.pool = {.seed = config.seed,
                                  .sizes = data::resolve_sizes(config.batch, 1),
                                  .batch = plan::batch_of(config),
                                  .temperature = config.data.temperature},
                         .workers = static_cast<int>(config.data.workers)}};
    const Clock clock;
    static_cast<void>(loader.next());  // the first pool is planned
    std::int64_t steps = 0, src_tokens = 0, tgt_tokens = 0;
    const double begin_s = clock.monotonic_s(), seconds = std::atof(argv[2]);
    while (clock.monotonic_s() - begin_s < seconds) {
      const data::StepBatches step = loader.next();
      ++steps;
      src_tokens += step.totals.src_tokens;
      tgt_tokens += step.totals.tgt_tokens;
    }
    const double taken_s = clock.monotonic_s() - begin_s;
    std::cout << boost::json::serialize(
                     boost::json::object{{"steps_per_s", static_cast<double>(steps) / taken_s},
                                         {"src_tokens_per_s", static_cast<double>(src_tokens) / taken_s},
                                         {"tgt_tokens_per_s", static_cast<double>(tgt_tokens) / taken_s}})
              << '\n';
  } catch (const Error& error) {
    std::cerr << "loader: " << error.what() << '\n';
    return static_cast<int>(exit_code(error.fault()));
  }
  return 0;
}
