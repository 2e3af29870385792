#include "chain.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <filesystem>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "support/small_text.hpp"

namespace argosy::test {
namespace {

namespace json = boost::json;

constexpr const char* config = R"({
  "run_dir": "run", "seed": 3,
  "data": {"tokenizer": "t.model", "shards": "shards", "cache": "cache", "tokenizer_training": {"vocab_size": 300},
           "corpora": [{"name": "verses", "source": "train.en", "target": "train.es"}]},
  "model": {"width": 16, "ff": 32, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 1}},
  "schedule": {"lr": 2e-3, "warmup": 2, "length": 8},
  "batch": {"global_size": 500, "micro_size": 500, "pool": 50},
  "precision": {"mode": "fp32"},
  "checkpoint": {"interval": 2},
  "validation": {"interval": 8, "metrics": ["loss"], "sets": [{"source": "valid.en", "target": "valid.es"}]},
  "telemetry": {"log_interval": 2}
})";

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  ARGOSY_CHECK(value != nullptr, "{} is not set: run this through ctest", name);
  return value;
}

void copy_tree(const Path& from, const Path& to) {
  using std::filesystem::copy_options;
  std::filesystem::copy(from, to, copy_options::recursive | copy_options::copy_symlinks);
}

}  // namespace

Ended run(const Path& folder, const std::string& command) {
  static std::atomic<int> number = 0;
  const Path output = folder.parent_path() / fmt::format("{}.out.{}", folder.filename().string(), ++number);
  const std::string line = fmt::format(
      "cd '{}' && A='{}/apps' && export XDG_CACHE_HOME=cache A && exec env -u PMI_FD -u PMI_RANK -u PMI_SIZE -u "
      "PMI_PORT "
      "-u PMI_ID timeout -k 5 60 sh -c '{}' >'{}' 2>&1 </dev/null",
      folder.string(), environment("ARGOSY_BUILD_DIR"), command, output.string());
  const int status = std::system(line.c_str());
  Ended ended{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
              .output = Files::system().read_text(output)};
  Files::system().remove(output);
  return ended;
}

std::vector<std::string> files_below(const Path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && !entry.is_symlink())
      names.push_back(entry.path().lexically_relative(folder).string());
  }
  std::ranges::sort(names);
  return names;
}

std::string result_at(const Path& path) {
  const Files files = Files::system();
  const auto facts = files.stat(path);
  if (!facts) return "";
  if (!facts->is_directory) return digest_of(files.read_text(path)).hex();
  std::string text;
  for (const std::string& name : files_below(path)) {
    const Path file = path / name;
    if (file.extension() == ".h5" || name.starts_with("run.lock.")) continue;  // vouched for by the manifest; a lease
    const bool manifest = file.filename() == "MANIFEST.json";
    text += fmt::format("{} {}\n", name,
                        manifest ? json::serialize(json::parse(files.read_text(file)).at("shards"))
                                 : digest_of(files.read_text(file)).hex());
  }
  return text;
}

const std::vector<Part>& parts() {
  static const std::vector<Part> all{
      {"Data",
       {"config.json", "train.en", "train.es", "valid.en", "valid.es", "t.model", "t.model.recipe", "cache", "shards"},
       {"t.model", "t.model.recipe", "cache", "shards"},
       {{"$A/train config.json --set run_dir=trained --set schedule.length=4", "trained/export/000000004"},
        {"$A/preprocess config.json", "shards"},
        {"rm -rf t.model* shards && $A/preprocess config.json", "t.model"}}},
      {"Run",
       {"config.json", "valid.en", "valid.es", "t.model", "t.model.recipe", "shards", "run"},
       {"run"},
       {{"$A/soup run/checkpoints/* --out mean", "mean"},
        {"$A/export run/checkpoints/000000006 --out ct2", "ct2"},
        {"$A/train config.json", "run/export/000000008"}}},
      {"Soup",
       {"soup", "valid.en"},
       {"soup"},
       {{"$A/export soup --out ct2", "ct2"}, {"$A/translate soup <valid.en >out", "out"}}},
      {"Export",
       {"ct2"},
       {"ct2"},
       {{"cd ct2 && sha256sum --strict --quiet -c SHA256SUMS && ls | grep -v SHA256SUMS | xargs cat >../sums",
         "sums"}}}};
  return all;
}

Chain::Chain() {
  const Files files = Files::system();
  constexpr int training = 100, all = 110;
  const Verses text = verses(all);
  for (const auto& [language, lines] : {std::pair{"en", &text.english}, std::pair{"es", &text.spanish}}) {
    files.write_atomically(folder() / fmt::format("train.{}", language),
                           joined({lines->begin(), lines->begin() + training}));
    files.write_atomically(folder() / fmt::format("valid.{}", language),
                           joined({lines->begin() + training, lines->end()}));
  }
  files.write_atomically(folder() / "config.json", std::string_view{config});
  for (const char* command :
       {"$A/count config.json", "$A/preprocess config.json", "$A/train config.json && rm -r run/export/*",
        "$A/soup run/checkpoints/*", "$A/export soup --out ct2", "$A/translate soup <valid.en >valid.out"}) {
    const Ended ended = run(folder(), command);
    ARGOSY_CHECK(ended.good(), "{}: code {}: {}", command, ended.code, ended.output);
  }
}

const Chain& Chain::whole() {
  static const Chain chain;
  return chain;
}

std::unique_ptr<TempFolder> Chain::copy(const std::vector<std::string>& parts) const {
  auto to = std::make_unique<TempFolder>();
  for (const std::string& part : parts) copy_tree(folder() / part, *to / part);
  return to;
}

std::vector<std::string> Chain::files_of(const Part& part) const {
  std::vector<std::string> files;
  for (const std::string& under : part.under) {
    if (!std::filesystem::is_directory(folder() / under)) {
      files.push_back(under);
      continue;
    }
    for (const std::string& name : files_below(folder() / under)) files.push_back(under + "/" + name);
  }
  return files;
}

}  // namespace argosy::test
