#pragma once

#include <string>
#include <vector>

#include "app.hpp"
#include "decode/likelihood.hpp"
#include "names.hpp"

/// The part of the command line of `translate` that says what a translation is, and what is scored.
namespace argosy::app {

/// How a translation is searched for.
inline void add_search_options(CLI::App& cli, decode::TranslateOptions& options) {
  decode::SearchOptions& search = options.search;
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return cli.add_option(name, value, text)->capture_default_str()->group("Search");
  };
  add("--beam", search.beam, "number of hypotheses; 1: greedy")->check(CLI::Range(1, 64));
  add("--length-penalty", search.length_penalty,
      "divide the log-probability of a translation by its length to this power; 0: do not");
  take_names<decode::LengthPenalty>(
      cli.add_option("--length-penalty-type", search.length_penalty_type,
                     "power | wu: divide by a power of (5 + length) / 6 instead, as GNMT does")
          ->default_str("power")
          ->group("Search"));
  add("--word-penalty", search.word_penalty,
      "first subtract this number times the length from the log-probability, as Marian does");
  add("--patience", search.patience, "stop when beam · patience hypotheses are finished")->check(CLI::PositiveNumber);
  add("--max-length", search.max_length, "most pieces in a translation, EOS and prefixes included")
      ->check(CLI::PositiveNumber);
  add("--max-length-factor", search.max_length_factor,
      "a translation has at most this number times the source's pieces, plus 10; 0: no such limit")
      ->check(CLI::NonNegativeNumber);
  add("--min-length", search.min_length, "fewest pieces before EOS, prefixes included")->check(CLI::NonNegativeNumber);
  add("--no-repeat-ngram", search.no_repeat_ngram,
      "no sequence of this many pieces comes twice in a translation, or in a prompt and what continues it; 0: off")
      ->check(CLI::NonNegativeNumber);
  add("--repetition-penalty", search.repetition_penalty,
      "the logit z of a piece that is in the translation or the prompt already becomes z divided by this number if z > "
      "0, and z times it otherwise")
      ->check(CLI::PositiveNumber);
  cli.add_option("--stop", options.stop,
                 "a translation ends when its text contains this, and is cut before it; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group("Search");
}

/// How it is drawn at random instead.
inline void add_sampling_options(CLI::App& cli, decode::SearchOptions& search) {
  CLI::Option* const sample = cli.add_flag("--sample", search.sample,
                                           "draw each piece at random instead of searching for the best translation; "
                                           "log-probabilities are those before --temperature, --top-k and --top-p")
                                  ->excludes("--beam", "--patience")
                                  ->group("Sampling");
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return cli.add_option(name, value, text)->capture_default_str()->needs(sample)->group("Sampling");
  };
  add("--temperature", search.temperature, "divide the logits by this number before drawing")
      ->check(CLI::PositiveNumber);
  add("--top-k", search.top_k, "draw from this many of the most probable pieces; 0: from all")
      ->check(CLI::NonNegativeNumber);
  add("--top-p", search.top_p,
      "then draw from the fewest of the most probable pieces whose probabilities add up to this number")
      ->check(CLI::Range(0.0, 1.0));
  add("--seed", search.seed,
      "what is drawn follows from this number, the line's number and the position, whatever the number of ranks");
}

/// What stands before sources and translations. prefixes: the file of the latter.
inline void add_prefix_options(CLI::App& cli, decode::TranslateOptions& options, Path& prefixes) {
  const auto add_tokens = [&](const char* name, std::vector<std::string>& tokens, const char* text) {
    cli.add_option(name, tokens, text)->type_name("TOKEN")->allow_extra_args(false)->group("Prefixes");
  };
  add_tokens("--source-prefix", options.source_prefix,
             "a piece of the vocabulary, such as a language token, before each line; may be repeated");
  add_tokens("--target-prefix", options.target_prefix,
             "a piece that each translation begins with; may be repeated. Not for decoder-only models");
  cli.add_option("--prefix", prefixes,
                 "file with the beginning of each translation, a line for each line of the input; after "
                 "--target-prefix. Not for decoder-only models")
      ->group("Prefixes");
  cli.add_flag("--omit-prefix", options.omit_prefix, "write translations without their prefixes")->group("Prefixes");
}

/// Probabilities of given targets. targets: their file.
inline void add_score_options(CLI::App& cli, bool& score, Path& targets, decode::ScoreOptions& options) {
  CLI::Option* const score_flag =
      cli.add_flag("--score", score,
                   "translate nothing; write for each line the log-probability of its target, the same for each piece, "
                   "the number of pieces, and 1 if each piece is the most probable one, with tabs between. The target "
                   "is in --target, or in the line after a tab. A decoder-only model scores what continues the line; "
                   "an encoder-decoder's translation ends with EOS")
          ->group("Scoring");
  cli.add_option("--target", targets, "file with the target of each line")->needs(score_flag)->group("Scoring");
  cli.add_flag("--token-scores", options.token_scores,
               "a fifth field: the log-probability of each piece, with blanks between")
      ->needs(score_flag)
      ->group("Scoring");
}

}  // namespace argosy::app
