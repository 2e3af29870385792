#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "app.hpp"
#include "decode/likelihood.hpp"
#include "decode/load.hpp"
#include "search_options.hpp"

/// The command line of the tool translate.
namespace argosy::app {

struct TranslateCommand {
  TranslateCommand();
  TranslateCommand(const TranslateCommand&) = delete;  // `cli` writes into the members
  TranslateCommand& operator=(const TranslateCommand&) = delete;

  /// Fills in what follows from the options that were given, after parse(). Throws Error{usage} for some that do not go
  /// together.
  void resolve();

  CLI::App cli{
      "Translates a text line by line. A decoder-only model continues each line. With --score, gives the probability "
      "of translations or continuations instead."};
  std::string directory, task;
  decode::TextFiles files;
  decode::TranslateOptions options{.search = {.beam = 4}};
  decode::ScoreOptions score_options;
  decode::Precision precision = decode::Precision::fp32;
  bool ema = false, score = false;

 private:
  void add_output_options();

  Path prefixes_, targets_;
  std::int64_t alignment_layer_ = 0;
};

inline constexpr std::string_view translate_examples =
    "  echo \"Click the button.\" | apps/translate runs/quickstart/soup                     one line, to the terminal\n"
    "  mpiexec -n 2 apps/translate CKPT --input test.en --output out.fr --reference test.fr  with scores\n"
    "  apps/translate CKPT --input test.en --nbest 4                                         four of each line\n"
    "  apps/translate CKPT --task en-fr --source-prefix '<2fr>' --input test.en              a model of several tasks\n"
    "  apps/translate CKPT --input test.en --sample --top-p 0.9 --seed 7                     drawn at random\n"
    "  apps/translate CKPT --input test.en --target test.fr --score                          log-probabilities\n";

inline TranslateCommand::TranslateCommand() {
  cli.add_option(
         "MODEL", directory,
         "directory of a committed checkpoint, of a soup, of a Hugging Face model, or of a CTranslate2 model that "
         "apps/export has written")
      ->required();
  add_task_option(cli, task, "Give what it read before each source (tasks.source_prefix) with --source-prefix");
  cli.add_option("--input", files.input,
                 "text file; default: standard input, of which rank 0 translates each line when it arrives");
  cli.add_option("--output", files.output,
                 "file for the translations, created or replaced when all are done; default: standard output");
  cli.add_flag("--ema", ema, "translate with the running means (optimizer.ema) instead of the weights");
  take_names<decode::Precision>(
      cli.add_option(
             "--precision", precision,
             "fp32 | bf16 (weights and what is computed from them in 16 bits; for CPUs with bf16 instructions) | "
             "int8 (weights of matrix products, and the values they are multiplied by, rounded to 8 bits): both "
             "are faster, with nearly the same translations")
          ->default_str("fp32"));
  cli.add_flag(
      "--escapes", options.escapes,
      "in all texts, \\n, \\r, \\t and \\\\ stand for a line feed, a carriage return, a tab and a backslash, so that a "
      "line holds a text of several lines");
  add_output_options();
  add_search_options(cli, options);
  add_sampling_options(cli, options.search);
  add_prefix_options(cli, options, prefixes_);
  add_score_options(cli, score, targets_, score_options);
}

inline void TranslateCommand::add_output_options() {
  cli.add_option("--reference", files.reference, "reference translations: adds BLEU, chrF and TER to the result line")
      ->group("Translation");
  CLI::Option* const scores =
      cli.add_flag("--scores", files.with_scores, "write the score and a tab before each translation")
          ->group("Translation");
  cli.add_option("--nbest", options.search.nbest,
                 "write this number of hypotheses for each line, at most --beam, or of samples, in Marian's format: "
                 "number of the line from 0 ||| text ||| F0= log-probability ||| score")
      ->check(CLI::Range(1, 1000))
      ->excludes(scores)
      ->group("Translation");
  cli.add_flag("--alignments", files.with_alignments,
               "write ||| and the alignment after each translation, or with --score as a last field: for each piece, "
               "the piece of the source that cross-attention weighs most, as in 0-0 2-1 (source first, from 0)");
  cli.add_option("--alignment-layer", alignment_layer_,
                 "the decoder layer, from 1, whose cross-attention decides, by its mean over the heads; default: the "
                 "last")
      ->check(CLI::PositiveNumber)
      ->needs("--alignments");
}

inline void TranslateCommand::resolve() {
  for (const CLI::Option* const option : cli.get_options()) {
    const std::string& group = option->get_group();
    if (score && option->count() > 0 && group != "Scoring" && group != "Options")
      throw Error{Fault::usage, {.sentence = fmt::format("--score translates nothing; omit {}", option->get_name())}};
  }
  const auto refuse = [](std::string sentence) { throw Error{Fault::usage, {.sentence = std::move(sentence)}}; };
  if (options.omit_prefix && options.target_prefix.empty() && prefixes_.empty())
    refuse("--omit-prefix needs --target-prefix or --prefix");
  if (std::count(options.stop.begin(), options.stop.end(), "") > 0) refuse("--stop needs a text that is not empty");
  if (options.search.sample) options.search.beam = 1;
  files.nbest = cli.count("--nbest") > 0;
  score_options.escapes = options.escapes;
  if (files.with_alignments) options.alignment = score_options.alignment = alignment_layer_;
  if (score) files.with_alignments = false;  // they are a field of the scores
  if (const Path& targets = score ? targets_ : prefixes_; !targets.empty()) files.targets = targets;
}

}  // namespace argosy::app
