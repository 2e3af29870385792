#include "data/count.hpp"

#include <boost/json.hpp>

#include "app.hpp"
#include "data/corpora.hpp"
#include "plan/run_config.hpp"

namespace {

using namespace argosy;

constexpr const char* examples =
    "  apps/count corpus.en corpus.fr                    lines, words, characters and bytes of two files\n"
    "  mpiexec -n 8 apps/count configs/mt_base.json      the texts of a configuration, counted by 8 ranks\n";

}  // namespace

int main(int argc, char** argv) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    config::Options options;
    std::vector<std::string> more;
    bool content_hash = false;
    CLI::App app{"Counts lines, words, characters and bytes of texts, and keeps the counts for later calls."};
    app::add_config_options(app, options);
    app.get_option("CONFIG")->description("configuration (.json) whose texts are counted, or the first text");
    app.add_option("FILE", more, "further texts");
    app.add_flag("--content-hash", content_hash, "read the texts again even if path, size and times are unchanged");
    if (!app::parse(app, argc, argv, examples, context)) return Exit::ok;

    data::CountSettings settings{.cache = data::user_cache_folder() / "count", .content_hash = content_hash};
    std::vector<data::CountedCorpus> corpora;
    std::vector<data::CountedFile> files;
    std::optional<Path> shards;
    const double begin_s = context.clock.monotonic_s();
    if (more.empty() && (options.config.empty() || options.config.extension() == ".json")) {
      const auto config = app::load_config<plan::RunConfig>(options, context);
      if (!config) return Exit::ok;
      context.world.configure(config->comm);
      settings.cache = data::cache_folder(config->data, config->run_dir) / "count";
      settings.unpack.limit = config->data.unpacked_limit;
      shards = config->data.shards;
      corpora = data::count_corpora(context.world, context.files, context.log, config->data, settings);
      files = data::files_of(corpora);
    } else {
      std::vector<Path> texts{options.config};
      texts.insert(texts.end(), more.begin(), more.end());
      files = data::count_files(context.world, context.files, context.log, texts, settings);
    }
    const double elapsed_s = context.clock.monotonic_s() - begin_s;
    if (!context.is_root()) return Exit::ok;
    context.print(data::count_table(files));
    for (const data::CountedFile& file : files) {
      if (const auto& place = file.record.first_invalid) {
        context.log.warn("{} is not valid UTF-8 at line {}, byte {} (the first such place)", file.path.string(),
                         place->line + 1, place->byte_offset);
      }
    }
    boost::json::object figures = data::count_figures(files);
    figures["elapsed_s"] = elapsed_s;
    if (shards && context.files.exists(data::shard_index_path(*shards))) {
      try {
        figures["corpora"] = data::token_figures(data::read_shard_index(context.files, *shards), corpora);
      } catch (const Error& error) {  // preprocess, which runs next, writes them again
        context.log.warn("tokens are not counted: {}", error.what());
      }
    }
    context.print_result("count", std::move(figures));
    return Exit::ok;
  });
}
