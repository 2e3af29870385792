# shellcheck shell=bash
# Bugs that searching, sampling and scoring may have, and the tests that see them; sourced by scripts/mutants.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

decode=unit/unit_decode

mutant penalty_of_each_occurrence 'an id that occurs twice is penalized twice' lib/decode/choice.cpp $decode 1 'Penalties.*' \
  '  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
' ''
mutant penalty_divides_all 'negative logits are divided by the penalty' lib/decode/choice.cpp $decode 1 'Penalties.*' \
  'z > 0 ? z / penalty : z * penalty' 'z / penalty'
mutant ngram_of_the_end_alone 'the newest repetition of a sequence is not seen' lib/decode/choice.cpp $decode 1 'Penalties.*' \
  'i + before < ids.size(); ++i' 'i + before + 1 < ids.size(); ++i'
mutant nucleus_too_small 'the id that reaches top_p is left out' lib/decode/choice.cpp $decode 1 'Draw.*' \
  'sums.erase(enough + 1, sums.end())' 'sums.erase(enough, sums.end())'
mutant draw_ignores_temperature 'the temperature has no effect' lib/decode/choice.cpp $decode 1 'Draw.*' \
  ' / options.temperature));' '));'
mutant prompt_forgotten 'penalties do not see the prompt' lib/decode/search.cpp $decode 1 '*Prompt*' \
  'shape.type == spec::ModelType::decoder ? sources_[sentence.index].ids : Ids()' 'Ids()'
mutant samples_alike 'all samples of a sentence are the same' lib/decode/search.cpp $decode 1 'Sampling.*' \
  '                          static_cast<std::uint64_t>(sample));' '                          0);'
mutant lines_alike 'lines are drawn with the same numbers' lib/decode/search.cpp $decode 1 'Sampling.*' \
  'random(options_.seed, source.line,' 'random(options_.seed, 0,'
mutant few_for_nbest 'a search ends with fewer hypotheses than it is asked for' lib/decode/search.cpp $decode 1 'Beam.*' \
  '(count >= options_.nbest &&' '(count >= 1 &&'
mutant word_penalty_ends_early 'a word penalty does not keep the search going' lib/decode/search.cpp $decode 1 'Search.ScoresFollow*' \
  'options_.length_penalty == 0.0 && options_.word_penalty == 0.0 &&' 'options_.length_penalty == 0.0 &&'
mutant stopped_one_goes_on 'what takes the place of a finished beam may have ended itself' lib/decode/search.cpp $decode 1 'Beam.WhatTakes*' \
  'ends(sentence, candidates[spare])) ++spare' 'candidates[spare].id == model_.architecture().vocabulary.eos) ++spare'
mutant finished_goes_on 'a finished beam goes on if nothing is left to take its place' lib/decode/search.cpp $decode 1 'Beam.WhatTakes*' \
  '          candidate.score = impossible;' ''
mutant likelihood_of_the_next 'each id is scored one position late' lib/decode/likelihood.cpp $decode 1 '*Likelihood*' \
  'std::int64_t place = end - std::ssize(target)' 'std::int64_t place = end + 1 - std::ssize(target)'
mutant greedy_by_the_last 'the last id alone decides whether a target is greedy' lib/decode/likelihood.cpp $decode 1 'Likelihood.Tells*' \
  'out[i].is_greedy && one->second' 'one->second'
mutant aligned_with_eos 'EOS of the source takes part in alignments' lib/decode/likelihood.cpp $decode 1 'Alignment.*' \
  'std::ssize(targets[i].source) - 1;' 'std::ssize(targets[i].source);'
mutant attention_of_padding 'padding takes part in alignments' lib/model/block.cpp unit/unit_model 1 'Inference.Cross*' \
  '.masked_fill(unseen, -std::numeric_limits<float>::infinity())' ''
mutant alignments_of_prefix 'alignments keep the prefix that the text leaves out' lib/decode/lines.cpp mpi/mpi_decode 1 'Alignments.*' \
  'alignment_text(*next_aligned++, skipped, ' 'alignment_text(*next_aligned++, 0, '
mutant blank_of_context 'the blank at the end of a context is no part of the continuation' lib/decode/likelihood.cpp mpi/mpi_decode 1 'ScoreLines.*' \
  'source.substr(0, source.find_last_not_of('"' '"') + 1)' 'source'
mutant stop_kept 'the stop string stays in the text' lib/decode/lines.cpp mpi/mpi_decode 1 'TranslateLines.Begins*' \
  '    text.resize(stop_in(text));
' ''
mutant targets_of_other_lines 'targets are not read along with their lines' lib/decode/translate.cpp mpi/mpi_decode 1 '*TargetsGo*' \
  'Lines more = source.next(part.size() - lines.size());' 'Lines more = source.next(1 + part.size() - lines.size());'
mutant scores_of_own_lines 'a rank scores the lines that it has counted, not all' lib/decode/translate.cpp mpi/mpi_decode 2 '*ScoresCountOver*' \
  'for (const std::span<std::int64_t> each : {bleu.counts(), chrf.counts(), ter.counts()}) world.all_reduce(each);' 'static_cast<void>(world);'
