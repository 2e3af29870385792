#pragma once

#include <boost/json/parse.hpp>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "config/describe.hpp"
#include "data/preprocess.hpp"
#include "support/captured.hpp"
#include "support/shared_folder.hpp"
#include "support/small_text.hpp"
#include "train/trainer.hpp"

/// A small run of translation, for tests of whole trainings.
namespace argosy::test {

/// Texts, tokenizer and shards of all these tests, made once.
class Material {
 public:
  static const Material& get() {
    static const Material material;
    return material;
  }
  [[nodiscard]] const Path& folder() const { return folder_; }

  /// A configuration of a run in `run_dir`; six steps of four micro-batches. set: "KEY=VALUE".
  [[nodiscard]] plan::RunConfig config(const Path& run_dir, const std::vector<std::string>& set = {}) const {
    const std::string text = fmt::format(R"({{
      "run_dir": "{1}", "seed": 11,
      "data": {{"tokenizer": "{0}/tokenizer.model", "shards": "{0}/shards",
        "corpora": [{{"name": "verses", "source": "{0}/train.en", "target": "{0}/train.es"}}],
        "tokenizer_training": {{"vocab_size": 300}}}},
      "model": {{"width": 32, "ff": 48, "heads": 2, "encoder": {{"layers": 1}}, "decoder": {{"layers": 1}}}},
      "schedule": {{"lr": 2e-3, "warmup": 2, "length": 6}},
      "batch": {{"global_size": 2400, "micro_size": 600, "pool": 100}},
      "precision": {{"mode": "fp32"}}, "checkpoint": {{"interval": 100}},
      "validation": {{"interval": 3, "sets": [{{"source": "{0}/valid.en", "target": "{0}/valid.es"}}]}},
      "telemetry": {{"log_interval": 1}}}})",
                                         folder_.string(), run_dir.string());
    config::Document document = config::Document::parse(text, "test.json");
    for (const std::string& assignment : set) document.set(assignment);
    return config::from_document<plan::RunConfig>(document);
  }

 private:
  Material() {
    // A name all ranks know, in a folder that the next run replaces: tests share it to the end of the process.
    folder_ = Path(testing::TempDir()) / fmt::format("argosy-train-np{}", world().size());
    if (world().rank() == 0) {
      const Files files = Files::system();
      files.remove_tree(folder_);
      files.make_folders(folder_);
      Verses text = verses(160);
      const auto cut = [](std::vector<std::string>& lines) {
        const std::vector<std::string> last(lines.end() - 12, lines.end());
        lines.resize(lines.size() - 12);
        return last;
      };
      files.write_atomically(folder_ / "valid.en", joined(cut(text.english)));
      files.write_atomically(folder_ / "valid.es", joined(cut(text.spanish)));
      files.write_atomically(folder_ / "train.en", joined(text.english));
      files.write_atomically(folder_ / "train.es", joined(text.spanish));
    }
    world().barrier("texts");
    const plan::RunConfig any = config(folder_ / "none");
    (void)data::run_preprocess(world(), Files::system(), Log{world().rank(), LogLevel::error},
                               {.data = any.data, .cache = folder_ / "cache"});
  }
  Path folder_;
};

/// Gives `body` a context of its own: no signal that an earlier one has seen counts.
template <class Body>
auto in_context(const comm::Communicator& ranks, const comm::Topology& where, const Files& files, const Body& body) {
  Log log{world().rank(), LogLevel::error};
  const Clock clock;
  const StopSignals stop;
  comm::Context context{ranks, where, log, files, clock, stop};
  return body(context);
}

inline train::TrainReport train_run(const plan::RunConfig& config, const train::TrainOptions& options = {},
                                    Hierarchy hierarchy = Hierarchy::flat, const Files& files = Files::system()) {
  return in_context(world(), topology(hierarchy), files,
                    [&](comm::Context& context) { return run_training(context, config, options); });
}

/// A run of `config` on the first `ranks` ranks, while the others wait.
inline void train_on(int ranks, const plan::RunConfig& config, const train::TrainOptions& options = {}) {
  {
    const bool takes_part = world().rank() < ranks;
    const comm::Communicator part = world().split(takes_part ? 0 : 1, world().rank());
    const comm::Topology topology = comm::Topology::discover(part, takes_part ? "node" : "spectators");
    in_context(part, topology, Files::system(), [&](comm::Context& context) {
      if (takes_part) (void)run_training(context, config, options);
    });
  }
  world().barrier("the run of some ranks");
}

/// The lines of metrics.jsonl. Empty but on rank 0.
inline std::vector<boost::json::object> metrics_lines(const Path& run_dir) {
  std::vector<boost::json::object> lines;
  if (world().rank() != 0) return lines;
  std::istringstream text{Files::system().read_text(run_dir / "metrics.jsonl")};
  for (std::string line; std::getline(text, line);) lines.push_back(boost::json::parse(line).as_object());
  return lines;
}

/// The lines of metrics.jsonl, without what a clock has measured. Empty but on rank 0.
inline std::vector<std::string> metrics_of(const Path& run_dir) {
  std::vector<std::string> lines;
  for (boost::json::object& line : metrics_lines(run_dir)) {
    for (const char* measured : {"src_tokens_per_s", "tgt_tokens_per_s", "padded_tokens_per_s", "tflops_per_rank",
                                 "mfu", "mfu_full", "memory_bytes", "data_wait_ms", "step_ms", "eta_s"})
      line.erase(measured);
    lines.push_back(config::text_of(line, false));
  }
  return lines;
}

/// Digests of everything a checkpoint's shards hold.
inline std::vector<std::string> bits_of(const Path& directory) {
  const checkpoint::Reader reader{Files::system(), directory};
  std::vector<std::string> digests;
  for (const auto& shard : reader.manifest().at("shards").as_array())
    digests.emplace_back(shard.at("root_digest").as_string());
  return digests;
}

/// Everything that a checkpoint says of the run, but for when and how it was saved.
inline std::string sections_text(const Path& directory) {
  const checkpoint::Reader reader{Files::system(), directory};
  const checkpoint::Sections& s = reader.sections();
  std::string text;
  for (const boost::json::object* section :
       {&s.model, &s.optimizer, &s.schedule, &s.counters, &s.data, &s.rng, &s.metrics, &s.best})
    text += config::text_of(*section) + "\n";
  return text + config::text_of(s.history);
}

/// Every rank calls `body` behind step `step`, before it is saved.
template <class Body>
train::TrainOptions behind(std::int64_t step, Body body, train::TrainOptions options = {}) {
  options.after_step = [=](const train::RunState& state, const train::StepResult&) {
    if (state.step == step) body();
  };
  return options;
}

/// Rank `rank` gets a signal behind step `step`.
inline train::TrainOptions stop_behind(std::int64_t step, int rank, const train::TrainOptions& options = {}) {
  const auto stop = [=] {
    if (world().rank() == rank) std::raise(SIGTERM);
  };
  return behind(step, stop, options);
}

/// What a run warns of on this rank.
inline std::string warnings_of_run(const plan::RunConfig& config) {
  Log log{world().rank(), LogLevel::warn};
  const Clock clock;
  const StopSignals stop;
  return stderr_of([&] {
    comm::Context context{world(), topology(Hierarchy::flat), log, Files::system(), clock, stop};
    (void)train::run_training(context, config, {});
  });
}

/// The run's text as two corpora, read online.
inline plan::RunConfig with_two_corpora(const SharedFolder& folder) {
  plan::RunConfig config = Material::get().config(folder / "run");
  config.data.tokenizer_training.reset();
  config.data.shards = folder / "shards";
  config.data.mode = data::DataMode::online;
  config.data.corpora.push_back(config.data.corpora[0]);
  return config;
}

}  // namespace argosy::test
