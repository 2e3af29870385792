#include "data/count.hpp"

#include <boost/json.hpp>

#include "app.hpp"
#include "data/corpora.hpp"
#include "data/token_count.hpp"
#include "data/tokenizer_files.hpp"
#include "plan/run_config.hpp"

namespace {

using namespace argosy;

constexpr const char* examples =
    "  apps/count corpus.en corpus.fr.gz                 lines, words, characters and bytes of two files\n"
    "  xz -dc corpus.xz | apps/count -                   those of standard input\n"
    "  apps/count --tokenizer fr.model corpus.fr         tokens as well, and how long the lines are\n"
    "  mpiexec -n 8 apps/count configs/mt_base.json      the texts of a configuration, counted by 8 ranks\n";

struct Counted {
  std::vector<data::CountedFile> files;
  std::vector<data::CountedCorpus> corpora;
  std::vector<std::string> names;  // of the corpora
};

Counted count_texts(comm::Context& context, const std::vector<Path>& paths, const data::CountSettings& settings) {
  Counted counted;
  if (paths == std::vector<Path>{"-"}) {
    counted.files = {data::count_standard_input(context.world, context.files)};
    return counted;
  }
  counted.files = data::count_files(context.world, context.files, context.log, paths, settings);
  for (const data::CountedFile& file : counted.files) {
    counted.corpora.push_back({.source = {file}});
    counted.names.push_back(file.path.string());
  }
  return counted;
}

Counted count_corpora(comm::Context& context, const plan::RunConfig& config, const data::CountSettings& settings) {
  Counted counted;
  counted.corpora = data::count_corpora(context.world, context.files, context.log, config.data, settings);
  counted.files = data::files_of(counted.corpora);
  for (const data::CorpusConfig& corpus : config.data.corpora) counted.names.push_back(corpus.name);
  return counted;
}

/// Tokens of the corpora: by the shards that were made of them, else counted. **Collective.**
boost::json::object tokens_of(comm::Context& context, const Counted& counted, const Path& shards,
                              const std::optional<data::Tokenizer>& tokenizer, const data::CountSettings& settings) {
  boost::json::object figures;
  comm::at_root(context.world, [&] {
    if (!shards.empty() && context.files.exists(data::shard_index_path(shards)))
      figures = data::token_figures(data::read_shard_index(context.files, shards), counted.corpora);
  });
  if (comm::any_of(context.world, !figures.empty()) || !tokenizer) return figures;
  data::require_readable(counted.corpora);
  const std::vector<data::TokenCount> counts =
      data::count_tokens(context.world, context.files, context.log, counted.corpora, *tokenizer, settings.cache);
  context.print(data::token_table(counted.names, counts));
  for (std::size_t c = 0; c < counts.size(); ++c)
    figures[counted.names[c]] = data::figures_of(counts[c], counted.corpora[c].rules.pairs);
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    config::Options options;
    std::vector<Path> texts;
    std::string tokenizer_file;
    bool content_hash = false;
    CLI::App app{"Counts lines, words, characters, bytes and tokens of texts, and keeps the counts for later calls."};
    app::add_config_options(app, options);
    app.get_option("CONFIG")->description(
        "configuration (.json) whose texts are counted, or the first text; - : stdin");
    app.add_option("FILE", texts, "further texts");
    app.add_option("--tokenizer", tokenizer_file,
                   "count tokens by this file; default: by data.tokenizer, if it exists");
    app.add_flag("--content-hash", content_hash, "read the texts again even if path, size and times are unchanged");
    if (!app::parse(app, argc, argv, examples, context)) return Exit::ok;

    data::CountSettings settings{.cache = data::user_cache_folder() / "count", .content_hash = content_hash};
    std::optional<plan::RunConfig> config;
    if (texts.empty() && (options.config.empty() || options.config.extension() == ".json")) {
      config = app::load_config<plan::RunConfig>(options, context);
      if (!config) return Exit::ok;
      context.world.configure(config->comm);
      settings.cache = data::cache_folder(config->data, config->run_dir) / "count";
      settings.unpack.limit = config->data.unpacked_limit;
    }
    std::optional<data::Tokenizer> tokenizer;
    constexpr spec::VocabularyRule any{.ids = spec::TokenIds{}};  // only the number of ids counts
    const bool own = config && tokenizer_file.empty() && data::has_tokenizer(context.files, config->data);
    if (comm::any_of(context.world, own || !tokenizer_file.empty()))
      comm::agree(context.world, [&] {
        tokenizer = tokenizer_file.empty() ? data::read_tokenizer(context.files, config->data, any)
                                           : data::Tokenizer::read(context.files, tokenizer_file, any);
      });
    if (tokenizer) settings.unpack.folder = settings.cache.parent_path() / "unpacked";
    const double begin_s = context.clock.monotonic_s();
    texts.insert(texts.begin(), options.config);
    const Counted counted = config ? count_corpora(context, *config, settings) : count_texts(context, texts, settings);
    context.print(data::count_table(counted.files));
    if (context.is_root()) data::log_warnings(context.log, counted.files);
    boost::json::object figures = data::count_figures(counted.files);
    try {
      boost::json::object tokens = tokens_of(context, counted, config ? config->data.shards : "", tokenizer, settings);
      if (!tokens.empty()) figures["corpora"] = std::move(tokens);
    } catch (const Error& error) {  // preprocess, which runs next, writes shards again and says what a text lacks
      if (!config) throw;
      context.log.warn("tokens are not counted: {}", error.what());
    }
    figures["elapsed_s"] = context.clock.monotonic_s() - begin_s;
    context.print_result("count", std::move(figures));
    return Exit::ok;
  });
}
