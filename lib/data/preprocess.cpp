#include "data/preprocess.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "comm/message.hpp"
#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/lease.hpp"
#include "data/show.hpp"
#include "data/token_shards.hpp"
#include "data/tokenize.hpp"
#include "data/tokenizer_files.hpp"

namespace argosy {

BOOST_DESCRIBE_STRUCT(Digest, (), (bytes))

}  // namespace argosy

namespace argosy::data {

BOOST_DESCRIBE_STRUCT(ShardIndex::Shard, (), (file, examples, size_bytes, digest))

namespace {

namespace json = boost::json;
constexpr double unknown_share_to_warn_of = 1e-3, left_out_share_to_warn_of = 0.5;

std::int64_t left_out(const ShardIndex::Corpus& corpus) {
  std::int64_t lines = 0;
  for (const auto& [reason, count] : corpus.dropped) lines += count;
  return lines;
}

/// "4 by max_length, 2 by empty": the most frequent reason first.
std::string reasons_of(const ShardIndex::Corpus& corpus) {
  std::vector<std::pair<std::int64_t, std::string>> reasons;
  for (const auto& [reason, count] : corpus.dropped)
    if (count > 0) reasons.emplace_back(-count, reason);
  std::ranges::sort(reasons);
  std::string text;
  for (const auto& [count, reason] : reasons)
    text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", -count, reason);
  return text;
}

/// One shard to be: which lines of which corpus.
struct Unit {
  std::size_t corpus = 0;
  ShardTask task;
  std::string file;
};

/// Lines of a shard: fewer where they are so long that a shard of them would fill a rank's memory.
std::int64_t lines_per_shard(const PreprocessSettings& settings, const CountedCorpus& corpus) {
  constexpr std::uint64_t most_bytes = 256ULL << 20;  // on average: of text in memory
  const auto lines = static_cast<std::uint64_t>(corpus.lines());
  const std::uint64_t line_bytes = (corpus.size_bytes() + lines - 1) / std::max<std::uint64_t>(lines, 1);
  const std::uint64_t most = most_bytes / std::max<std::uint64_t>(line_bytes, 1);
  return std::min(settings.lines_per_shard, std::max<std::int64_t>(1, static_cast<std::int64_t>(most)));
}

std::vector<Unit> plan_units(const PreprocessSettings& settings, std::span<const CountedCorpus> corpora,
                             std::span<const Pipeline> pipelines) {
  std::vector<Unit> units;
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    const CorpusConfig& corpus = settings.data.corpora[c];
    ShardTask task{.corpus = &corpus, .pipeline = &pipelines[c], .text = {.corpus = &corpora[c]}};
    const std::int64_t lines = corpora[c].lines(), per_shard = lines_per_shard(settings, corpora[c]);
    std::string recipe8;
    for (std::int64_t number = 0; number * per_shard < lines; ++number) {
      task.text.first_line = number * per_shard;
      task.text.lines = std::min(per_shard, lines - task.text.first_line);
      task.recipe = digest_of_task(task, pipelines[c].tokenizer().digest(), per_shard);
      if (number == 0) recipe8 = task.recipe.hex().substr(0, 8);
      units.push_back({c, task, fmt::format("{}-{}-{:05}.tokens", corpus.name, recipe8, number)});
    }
  }
  return units;
}

/// Of all shards.
Digest recipe_of(std::span<const Unit> units) {
  Hasher hasher;
  for (const Unit& unit : units) hasher.update(std::as_bytes(std::span{unit.task.recipe.bytes}));
  return hasher.digest();
}

std::vector<Pipeline> pipelines_of(const PreprocessSettings& settings, const Tokenizer& tokenizer) {
  std::vector<Pipeline> pipelines;
  pipelines.reserve(settings.data.corpora.size());
  for (const CorpusConfig& corpus : settings.data.corpora)
    pipelines.emplace_back(corpus, tokenizer, settings.data.mode);
  return pipelines;
}

/// What a finished shard says of itself.
struct UnitResult {
  ShardIndex::Shard shard;
  std::int64_t src_tokens = 0, tgt_tokens = 0, unknown = 0;
  std::map<std::string, std::int64_t> dropped{};
  bool written = false;
};
BOOST_DESCRIBE_STRUCT(UnitResult, (), (shard, src_tokens, tgt_tokens, unknown, dropped, written))

UnitResult result_of(const TokenShard& shard, const Unit& unit) {
  shard.check();
  UnitResult result{.shard = {unit.file, shard.size(), shard.size_bytes(), shard.body_digest()}};
  try {
    const json::value note = json::parse(shard.note());
    result.src_tokens = note.at("src_tokens").to_number<std::int64_t>();
    result.tgt_tokens = note.at("tgt_tokens").to_number<std::int64_t>();
    result.unknown = note.at("unknown").to_number<std::int64_t>();
    result.dropped = json::value_to<std::map<std::string, std::int64_t>>(note.at("dropped"));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_error(Fault::corrupt, unit.file, "a shard's note", error.what());
  }
  return result;
}

/// What is to be said of a shard that is there, complete and of this recipe.
std::optional<UnitResult> find_unit(const Files& files, const Path& path, const Unit& unit, const Log& log) {
  if (!files.exists(path)) return std::nullopt;
  try {
    const TokenShard shard = TokenShard::open(files, path);
    if (shard.recipe_digest() != unit.task.recipe) return std::nullopt;
    shard.verify();
    return result_of(shard, unit);
  } catch (const Error& error) {
    log.warn("{}; preprocess writes this shard again", error.problem());
    return std::nullopt;
  }
}

UnitResult make_unit(const Files& files, const Log& log, const PreprocessSettings& settings, const Unit& unit) {
  const Path path = Path{settings.data.shards} / unit.file;
  if (std::optional<UnitResult> kept = find_unit(files, path, unit, log)) return *std::move(kept);
  files.write_atomically(path, tokenize_shard(files, unit.task, static_cast<int>(settings.data.workers)));
  UnitResult result = result_of(TokenShard::open(files, path), unit);
  result.written = true;
  return result;
}

/// **Collective.** Rank r makes units r, r + W, …; the results of all come back in unit order.
std::vector<UnitResult> make_units(const comm::Communicator& world, const Files& files, const Log& log,
                                   const PreprocessSettings& settings, std::span<const Unit> units) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<UnitResult> mine;
  comm::agree(world, [&] {
    for (std::size_t u = static_cast<std::size_t>(world.rank()); u < units.size(); u += ranks) {
      mine.push_back(make_unit(files, log, settings, units[u]));
      log.progress("tokenize", static_cast<double>(std::min(u + ranks, units.size())),
                   static_cast<double>(units.size()), "shards");
    }
  });
  std::vector<std::vector<UnitResult>> by_rank;
  for (const std::string& text : world.all_gather(comm::to_message(mine)))
    by_rank.push_back(comm::from_message<std::vector<UnitResult>>(text));
  std::vector<UnitResult> results;
  for (std::size_t u = 0; u < units.size(); ++u) results.push_back(std::move(by_rank[u % ranks].at(u / ranks)));
  return results;
}

ShardIndex index_of(const PreprocessSettings& settings, const Tokenizer& tokenizer, std::span<const Unit> units,
                    std::span<const UnitResult> results) {
  ShardIndex index{
      .tokenizer = tokenizer.digest(), .pieces = tokenizer.vocabulary().pieces, .recipe = {}, .corpora = {}};
  for (const CorpusConfig& corpus : settings.data.corpora) {
    ShardIndex::Corpus& entry = index.corpora.emplace_back();
    entry.name = corpus.name;
    entry.languages = corpus.languages;
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    ShardIndex::Corpus& corpus = index.corpora[units[u].corpus];
    const ShardTask& task = units[u].task;
    if (corpus.texts.empty()) {  // records have both sides of a pair in one file
      corpus.transforms = task.pipeline->recipe();
      const CountedCorpus& from = *task.text.corpus;
      corpus.texts.push_back({digest_of_texts(from.source), from.lines()});
      if (from.rules.pairs)
        corpus.texts.push_back({digest_of_texts(from.target.empty() ? from.source : from.target), from.lines()});
    }
    corpus.shards.push_back(results[u].shard);
    corpus.src_tokens += results[u].src_tokens;
    corpus.tgt_tokens += results[u].tgt_tokens;
    corpus.unknown += results[u].unknown;
    for (const auto& [reason, count] : results[u].dropped) corpus.dropped[reason] += count;
  }
  index.recipe = recipe_of(units);
  return index;
}

/// `<corpus>-<recipe>-<number>.tokens`, as plan_units spells it.
bool is_shard_name(std::string_view name) {
  constexpr std::string_view ending = ".tokens";
  constexpr std::size_t recipe_digits = 8, number_digits = 5;
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  const auto last_word = [&] {
    const std::size_t dash = name.rfind('-');
    const std::string_view word = dash == std::string_view::npos ? "" : name.substr(dash + 1);
    name = name.substr(0, dash == std::string_view::npos ? 0 : dash);
    return word;
  };
  return is_decimal(last_word(), number_digits) && is_hex(last_word(), recipe_digits) && !name.empty();
}

/// Removes files that a killed preprocess was writing. The owner of the folder calls it, before anyone writes.
void sweep_partials(const Files& files, const Path& folder) {
  const std::string index = shard_index_path(folder).filename();
  for (const std::string& name : files.list(folder)) {
    const std::optional<std::string> base = name_of_partial(name);
    if (!base || (*base != index && !is_shard_name(*base))) continue;
    const std::optional<FileStat> facts = files.stat(folder / name);
    if (!facts || !facts->is_directory) files.remove(folder / name);
  }
}

/// The folder of shards in the hands of one job: its lease, renewed while the shards are made. Rank 0 holds it.
class Ownership {
 public:
  /// **Collective.** Throws Error{usage} naming another job that is at work there.
  Ownership(const comm::Communicator& world, const Files& files, const Path& folder) {
    comm::at_root(world, [&] {
      files.make_folders(folder);
      lease_.emplace(files, clock_, folder, "folder of token shards");
      heartbeat_ = heartbeat(*lease_);
      sweep_partials(files, folder);
    });
  }
  /// Rank 0. Throws Error{usage} when another job has taken over.
  void check() const { lease_->check(); }

 private:
  const Clock clock_;
  std::optional<Lease> lease_;
  std::jthread heartbeat_;
};

void commit_index(const Files& files, const Path& folder, const ShardIndex& index) {
  files.write_atomically(shard_index_path(folder), text_of(index));
  std::set<std::string> used;
  for (const ShardIndex::Corpus& corpus : index.corpora) {
    for (const ShardIndex::Shard& shard : corpus.shards) used.insert(shard.file);
  }
  for (const std::string& name : files.list(folder)) {
    if (is_shard_name(name) && !used.contains(name)) files.remove(folder / name);
  }
}

void log_marks(const Log& log, std::span<const CountedFile> texts) {
  const auto has_mark = [](const CountedFile& text) { return text.record.has_byte_order_mark; };
  const auto first = std::ranges::find_if(texts, has_mark);
  if (first == texts.end()) return;
  log.info("{} of {} files begin with a byte order mark, which is left out; the first is {}",
           std::ranges::count_if(texts, has_mark), texts.size(), first->path.string());
}

void log_examples(const Files& files, const Log& log, const PreprocessSettings& settings,
                  std::span<const Pipeline> pipelines, std::span<const CountedCorpus> corpora,
                  const ShardIndex& index) {
  for (std::size_t c = 0; c < index.corpora.size(); ++c) {
    const ShardIndex::Corpus& corpus = index.corpora[c];
    const double ids = static_cast<double>(std::max<std::int64_t>(1, corpus.src_tokens + corpus.tgt_tokens));
    const double unknown = static_cast<double>(corpus.unknown) / ids;
    log.info("{}: {} examples, {} src_tokens, {} tgt_tokens, {:.4f} % unknown", corpus.name, corpus.examples(),
             corpus.src_tokens, corpus.tgt_tokens, 100 * unknown);
    for (const auto& [reason, count] : corpus.dropped) {
      if (count > 0) log.info("{}: {} examples left out: {}", corpus.name, count, reason);
    }
    const auto lines = static_cast<double>(corpus.examples()) + static_cast<double>(left_out(corpus));
    const double share = static_cast<double>(left_out(corpus)) / std::max(1.0, lines);
    if (share > left_out_share_to_warn_of)
      log.warn("{}: {:.1f} % of the lines are left out ({}); `preprocess --show 20` says why", corpus.name, 100 * share,
               reasons_of(corpus));
    if (unknown > unknown_share_to_warn_of) {
      log.warn(
          "{}: {:.2f} % of the ids are the unknown piece; raise character_coverage or train the tokenizer on this text",
          corpus.name, 100 * unknown);
    }
    const Pipeline& pipeline = pipelines[c];
    const TokenShard shard = TokenShard::open(files, Path{settings.data.shards} / corpus.shards.front().file);
    std::optional<PlacedTexts> texts;
    if (shard.has_places()) texts.emplace(files, corpora[c]);
    Example example;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(3, shard.size()); ++i) {
      shard.read(i, example);
      if (texts) texts->read(example);
      pipeline.finish(example, std::nullopt, shard.lengths(i));
      for (const bool source : {true, false}) {
        if (source && !shard.has_source()) continue;
        log.info("{} {} {}: {}", corpus.name, i, source ? "source" : "target",
                 text_of_ids(pipeline.tokenizer().side(source ? Side::source : Side::target),
                             source ? example.source : example.target));
      }
    }
  }
}

}  // namespace

PreprocessReport run_preprocess(const comm::Communicator& world, const Files& files, const Log& log,
                                const PreprocessSettings& settings) {
  const Path folder = settings.data.shards;
  const Ownership ownership{world, files, folder};
  const UnpackSettings unpack = unpack_settings(settings.data, settings.cache);
  comm::at_root(world, [&] { sweep_unpacked(files, unpack.folder); });
  const std::vector<CountedCorpus> corpora =
      count_corpora(world, files, log, settings.data, {.cache = settings.cache / "count", .unpack = unpack});
  require_readable(corpora);
  log_marks(log, files_of(corpora));
  const PreparedTokenizer prepared = prepare_tokenizer(world, files, log, settings, corpora);
  const std::vector<Pipeline> pipelines = pipelines_of(settings, prepared.tokenizer);
  const std::vector<Unit> units = plan_units(settings, corpora, pipelines);
  const std::vector<UnitResult> results = make_units(world, files, log, settings, units);
  PreprocessReport report{.index = index_of(settings, prepared.tokenizer, units, results),
                          .tokenizer_trained = prepared.trained};
  for (const UnitResult& result : results) ++(result.written ? report.shards_written : report.shards_kept);
  comm::agree(world, [&] {
    for (const ShardIndex::Corpus& corpus : report.index.corpora) {
      if (corpus.examples() > 0) continue;
      const std::int64_t lines = left_out(corpus);
      const bool is_empty = std::ranges::all_of(
          corpus.dropped, [](const auto& each) { return each.first == "empty" || each.second == 0; });
      throw_claim(Fault::data,
                  is_empty
                      ? fmt::format("corpus {} has no tokens: all of its examples are empty ({})", corpus.name, lines)
                      : fmt::format("corpus {}: its transforms leave out all of its {} lines: {}", corpus.name, lines,
                                    reasons_of(corpus)),
                  "corpus " + corpus.name, "lines that become examples", "none",
                  is_empty ? "correct data.corpora or its files"
                           : "see `preprocess --show 20`, and correct its transforms or its files");
    }
    if (world.rank() != 0) return;
    ownership.check();
    commit_index(files, folder, report.index);
    log_examples(files, log, settings, pipelines, corpora, report.index);
  });
  return report;
}

bool is_preprocessed(const comm::Communicator& world, const Files& files, const Log& log,
                     const PreprocessSettings& settings) {
  const Path folder = settings.data.shards;
  bool is_there = false;
  comm::at_root(world,
                [&] { is_there = files.exists(shard_index_path(folder)) && has_tokenizer(files, settings.data); });
  std::array<std::int64_t, 1> answer{is_there ? 1 : 0};
  world.all_reduce(answer);  // zero on the other ranks
  if (answer[0] == 0) return false;
  const UnpackSettings unpack = unpack_settings(settings.data, settings.cache);
  const std::vector<CountedCorpus> corpora =
      count_corpora(world, files, log, settings.data, {.cache = settings.cache / "count", .unpack = unpack});
  require_readable(corpora);
  comm::at_root(world, [&] {
    const Tokenizer tokenizer = read_tokenizer(files, settings.data, settings.vocabulary);
    const std::vector<Pipeline> pipelines = pipelines_of(settings, tokenizer);
    const Digest wanted = recipe_of(plan_units(settings, corpora, pipelines));
    try {
      const ShardIndex index = read_shard_index(files, folder);
      answer[0] = index.tokenizer == tokenizer.digest() && index.recipe == wanted ? 1 : 0;
    } catch (const Error&) {  // damaged, or of an older version
      answer[0] = 0;
    }
  });
  world.all_reduce(answer, comm::Reduce::min);
  return answer[0] == 1;
}

}  // namespace argosy::data
