#pragma once

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include "app.hpp"
#include "config/describe.hpp"
#include "interchange/formats.hpp"
#include "names.hpp"

/// The command line of the tool export.
namespace argosy::app {

struct ExportCommand {
  ExportCommand();
  ExportCommand(const ExportCommand&) = delete;  // `cli` writes into the members
  ExportCommand& operator=(const ExportCommand&) = delete;

  /// Whether something runs the model, which needs LibTorch.
  [[nodiscard]] bool runs_the_model() const { return verify || !trim.empty() || !extend.empty(); }

  CLI::App cli{"Converts a model between Argosy's checkpoints and the formats of other programs."};
  std::string from, format = "ct2", out, task;
  interchange::ExportOptions options;
  std::optional<interchange::Quantization> quantization;
  bool ema = false, verify = false, print_model = false;
  std::vector<Path> trim, texts;
  std::int64_t min_count = 1;
  Path extend;

 private:
  void add_vocabulary_options();
};

inline constexpr std::string_view export_examples =
    "  apps/export runs/quickstart/soup --format ct2 --out model      # ctranslate2.Translator(\"model\") loads it\n"
    "  apps/export CKPT --format hf --quantization bfloat16 --out model   # AutoModelForSeq2SeqLM or "
    "AutoModelForCausalLM\n"
    "  mpiexec -n 4 apps/export CKPT --quantization int8 --out model8  # a quarter of the size, written by 4 ranks\n"
    "  apps/export CKPT --out model --verify                           # reads the folder back and compares it\n"
    "  apps/export CKPT --format argosy --out small --vocab-trim text.en text.fr   # a smaller vocabulary\n"
    "  apps/export CKPT --format argosy --out large --vocab-extend pieces --vocab-text text.en   # new pieces\n"
    "  apps/export CKPT --task en-fr --format hf --out en-fr            # one direction of a model of several\n"
    "  apps/export --from hf:DIR --format argosy --out CKPT             # weights of others, to translate or "
    "fine-tune\n"
    "  apps/export --from hf:DIR --print-model                          # what `model` must say to fine-tune it\n";

inline ExportCommand::ExportCommand() {
  std::vector<std::string> descriptions;
  for (const interchange::Format& known : interchange::formats())
    descriptions.push_back(fmt::format("{}: {}", known.name, known.description));
  cli.add_option("--from,MODEL", from,
                 "directory of a committed checkpoint, of a soup, of a Hugging Face model (hf:DIR: that alone), or of "
                 "a CTranslate2 model that apps/export has written with floating-point weights")
      ->required();
  cli.add_option("--format", format, fmt::format("{}", fmt::join(descriptions, "; ")))->capture_default_str();
  CLI::Option* const folder = cli.add_option("--out", out, "folder to create; never overwritten");
  cli.add_flag("--print-model", print_model,
               "print the section `model` of a configuration of this model, for init_from, and convert nothing")
      ->excludes(folder);
  cli.callback([this] {
    if (out.empty() && !print_model) throw CLI::RequiredError("--out");
  });
  take_names<interchange::Quantization>(
      cli.add_option(
             "--quantization", quantization,
             "element type of the weights: float32 | float16 | bfloat16; ct2 alone: int8 | int16 | int8_float32 | "
             "int8_float16 | int8_bfloat16 (int8 matrices with all else in that type)")
          ->default_str("the type in which the model was trained"));
  cli.add_option("--max-shard-size", options.max_shard_bytes,
                 "hf: weights beyond this size go into several files; a number of bytes, or 500MB, 2GB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_task_option(cli, task, "What it read before each source (tasks.source_prefix) is not a part of the export");
  cli.add_flag("--ema", ema, "export the running means (optimizer.ema) instead of the weights");
  cli.add_flag(
      "--verify", verify,
      "before the folder gets its name, read it back: compare every tensor bit for bit with the model, and a "
      "forward pass on fixed ids. A difference is damage (exit code 4), and nothing is kept. Needs the program "
      "export_verified");
  add_vocabulary_options();
}

inline void ExportCommand::add_vocabulary_options() {
  const char* const group = "Vocabulary";
  CLI::Option* const trimmed =
      cli.add_option("--vocab-trim", trim,
                     "text files, of all languages of the model: only pieces that occur there stay in the vocabulary; "
                     "text of such pieces is encoded and translated as before. Needs the program export_verified")
          ->group(group);
  cli.add_option("--vocab-min-count", min_count, "how often a piece must occur there")
      ->check(CLI::PositiveNumber)
      ->needs(trimmed)
      ->capture_default_str()
      ->group(group);
  CLI::Option* const extended =
      cli.add_option("--vocab-extend", extend,
                     "file with pieces to add, one in a line; a blank (or ▁) begins a word. A piece begins with the "
                     "mean of the rows of the pieces that it replaces. Needs the program export_verified")
          ->excludes(trimmed)
          ->group(group);
  CLI::Option* const given =
      cli.add_option("--vocab-text", texts, "text on which the old and the extended vocabulary are compared")
          ->needs(extended)
          ->group(group);
  extended->needs(given);
}

}  // namespace argosy::app
