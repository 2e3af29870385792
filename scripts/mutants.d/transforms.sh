# shellcheck shell=bash
# Bugs that transforms may have, and the tests that see them; sourced by scripts/mutants: each transform that does nothing, and each
# of its keys that nobody reads.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

units=unit/unit_data tokenizers=unit/unit_tokenizer

mutant length_ratio_keeps_all 'length_ratio leaves nothing out' lib/data/transforms/length_ratio.cpp $units 1 'LengthRatioFilter.*' \
  'if (less == 0 ||' \
  'if (less >= 0 ||'
mutant length_ratio_threshold 'length_ratio ignores threshold' lib/data/transforms/length_ratio.cpp $units 1 'LengthRatioFilter.*' \
  '[most = threshold]' \
  '[most = 3.0]'
mutant terminal_punctuation_keeps_all 'terminal_punctuation leaves nothing out' lib/data/transforms/terminal_punctuation.cpp $units 1 'TerminalPunctuationFilter.*' \
  'if (score >= least)' \
  'if (score <= 0)'
mutant terminal_punctuation_threshold 'terminal_punctuation ignores threshold' lib/data/transforms/terminal_punctuation.cpp $units 1 'TerminalPunctuationFilter.*' \
  '[least = threshold]' \
  '[least = -2.0]'
mutant numerals_keeps_all 'numerals leaves nothing out' lib/data/transforms/numerals.cpp $units 1 'NumeralsFilter.*' \
  'if (share >= least)' \
  'if (share >= 0)'
mutant numerals_threshold 'numerals ignores threshold' lib/data/transforms/numerals.cpp $units 1 'NumeralsFilter.*' \
  '[least = threshold]' \
  '[least = .5]'
mutant punctuation_keeps_all 'punctuation leaves nothing out' lib/data/transforms/punctuation.cpp $units 1 'PunctuationFilter.*' \
  '++all;' \
  'all += 1000;'
mutant punctuation_threshold 'punctuation ignores threshold' lib/data/transforms/punctuation.cpp $units 1 'PunctuationFilter.*' \
  '[most = threshold]' \
  '[most = .5]'
mutant script_keeps_all 'script leaves nothing out' lib/data/transforms/script.cpp $units 1 'ScriptFilter.*' \
  'if (scripts.empty() ||' \
  'if (true ||'
mutant script_source 'script ignores source' lib/data/transforms/script.cpp $units 1 'ScriptFilter.*' \
  'of_source = codes_of(source)' \
  'of_source = codes_of({})'
mutant script_target 'script ignores target' lib/data/transforms/script.cpp $units 1 'ScriptFilter.*' \
  'of_target = codes_of(target)' \
  'of_target = codes_of({})'
mutant script_threshold 'script ignores threshold' lib/data/transforms/script.cpp $units 1 'ScriptFilter.*' \
  'least = threshold]' \
  'least = 1.0]'
mutant duplicate_target_keeps_all 'duplicate_target leaves nothing out' lib/data/transforms/duplicate_target.cpp $units 1 'DuplicateTargetFilter.*' \
  'return same ?' \
  'return same && source.empty() ?'
mutant duplicate_target_ignore_case 'duplicate_target ignores ignore_case' lib/data/transforms/duplicate_target.cpp $units 1 'DuplicateTargetFilter.*' \
  '(ignores &&' \
  '(!ignores && ignores &&'
mutant repetition_keeps_all 'repetition leaves nothing out' lib/data/transforms/repetition.cpp $units 1 'RepetitionFilter.*' \
  'if (found.period == 0)' \
  'if (found.period >= 0)'
mutant repetition_count 'repetition ignores count' lib/data/transforms/repetition.cpp $units 1 'RepetitionFilter.*' \
  '[config = *this]' \
  '[config = Repetition{.min = min, .max = max}]'
mutant repetition_min 'repetition ignores min' lib/data/transforms/repetition.cpp $units 1 'RepetitionFilter.*' \
  '[config = *this]' \
  '[config = Repetition{.count = count, .max = max}]'
mutant repetition_max 'repetition ignores max' lib/data/transforms/repetition.cpp $units 1 'RepetitionFilter.*' \
  '[config = *this]' \
  '[config = Repetition{.count = count, .min = min}]'
mutant repetition_inner_spaces 'spaces inside a repeated string may differ' lib/data/transforms/repetition.cpp $units 1 'RepetitionFilter.*' \
  'differences == between_copies && ' \
  ''
mutant subword_never_draws 'subword takes the best segmentation always' lib/data/transforms/subword.cpp $units 1 'Subword.*:SubwordSampler.*' \
  'if (samplers_.empty() || random == nullptr)' \
  'if (samplers_.empty() || true)'
mutant subword_alpha 'subword ignores alpha' lib/data/transforms/subword.cpp $units 1 'Subword.*:SubwordSampler.*' \
  '.alpha = config.alpha' \
  '.alpha = .1'
mutant subword_nbest 'subword ignores nbest' lib/data/transforms/subword.cpp $units 1 'Subword.*:SubwordSampler.*' \
  '.best = config.nbest' \
  '.best = -1'
mutant subword_growth 'subword ignores growth' lib/data/transforms/subword.cpp $units 1 'Subword.*:SubwordSampler.*' \
  'grown(lengths, *config_.growth)' \
  'grown(lengths, .25)'
mutant subword_plans_for_the_mean 'subword plans for the mean of its draws' lib/data/transforms/subword.cpp $units 1 'Subword.*:SubwordSampler.*' \
  'deviations = 3' \
  'deviations = 0'
mutant subword_runs_together 'text with and without loss is tokenized as one' lib/data/transforms/subword.cpp $units 1 'Transforms.Subword*' \
  'bears[end] == bears[begin]' \
  'end < text.size()'
mutant lattice_forgets_paths 'the lattice sums no paths' lib/tokenizer/lattice.cpp $tokenizers 1 'SampledUnigram.*' \
  'part += relative(edge(at).weight, greatest)' \
  'part = relative(edge(at).weight, greatest)'
mutant lattice_best_alone 'the best paths are drawn alike' lib/tokenizer/lattice.cpp $tokenizers 1 'SampledUnigram.*' \
  'std::exp(how.alpha * (path.score' \
  'std::exp(0 * (path.score'
mutant bpe_never_skips 'BPE of tokenizer.json passes over no merge' lib/tokenizer/bpe.cpp $tokenizers 1 'SampledBpe.*' \
  'if (skips()) continue;' \
  ''
mutant pieces_never_skip 'BPE of SentencePiece passes over no merge' lib/tokenizer/piece_sampler.cpp $units 1 'SubwordSampler.*' \
  '|| random.uniform() < how_.alpha' \
  ''
mutant user_pieces_cut 'pieces that users defined are cut' lib/tokenizer/piece_sampler.cpp $units 1 'SubwordSampler.Encodes*' \
  'if (found < 0) {' \
  'if (found < 0 || longest > 1) {'
mutant case_unchanged 'case changes nothing' lib/data/transforms/letter_case.cpp $units 1 'LetterCase.*' \
  'if (is_random() && (' \
  'if (!is_random() || ('
mutant case_to 'case ignores to' lib/data/transforms/letter_case.cpp $units 1 'LetterCase.*' \
  'switch (config_.to)' \
  'switch (CaseKind::upper)'
mutant case_sides 'case ignores sides' lib/data/transforms/letter_case.cpp $units 1 'LetterCase.*' \
  'change_texts(example, config_.sides,' \
  'change_texts(example, Sides::both,'
mutant case_probability 'case ignores probability' lib/data/transforms/letter_case.cpp $units 1 'LetterCase.*' \
  'random->uniform() >= config_.probability' \
  'random->uniform() >= .5'
mutant case_growth 'case ignores growth' lib/data/transforms/letter_case.cpp $units 1 'LetterCase.*' \
  'grown(lengths, *config_.growth,' \
  'grown(lengths, .5,'
mutant noise_unchanged 'noise changes nothing' lib/data/transforms/character_noise.cpp $units 1 'CharacterNoise.*' \
  'if (random == nullptr) return true;' \
  'if (random != nullptr || true) return true;'
mutant noise_drop 'noise ignores drop' lib/data/transforms/character_noise.cpp $units 1 'CharacterNoise.*' \
  'happens(config_.drop)' \
  'happens(0)'
mutant noise_swap 'noise ignores swap' lib/data/transforms/character_noise.cpp $units 1 'CharacterNoise.*' \
  'happens(config_.swap)' \
  'happens(0)'
mutant noise_insert 'noise ignores insert' lib/data/transforms/character_noise.cpp $units 1 'CharacterNoise.*' \
  'happens(config_.insert)' \
  'happens(0)'
mutant noise_repeat 'noise ignores repeat' lib/data/transforms/character_noise.cpp $units 1 'CharacterNoise.*' \
  'happens(config_.repeat)' \
  'happens(0)'
mutant noise_sides 'noise ignores sides' lib/data/transforms/character_noise.cpp $units 1 'CharacterNoise.*' \
  'change_texts(example, config_.sides,' \
  'change_texts(example, Sides::source,'
mutant noise_growth 'noise ignores growth' lib/data/transforms/character_noise.cpp $units 1 'CharacterNoise.*' \
  'grown(lengths, *config_.growth,' \
  'grown(lengths, .25,'
mutant concatenate_unchanged 'concatenate changes nothing' lib/data/transforms/concatenate.cpp $units 1 'Concatenate.*' \
  'if (most == 0)' \
  'if (most < 9)'
mutant concatenate_probability 'concatenate ignores probability' lib/data/transforms/concatenate.cpp $units 1 'Concatenate.*' \
  'random->uniform() >= config_.probability' \
  'random->uniform() >= .5'
mutant concatenate_lines 'concatenate ignores lines' lib/data/transforms/concatenate.cpp $units 1 'Concatenate.*' \
  'static_cast<std::size_t>(config_.lines)' \
  'std::size_t{1}'
mutant draws_are_not_planned 'lengths are planned as if nothing were drawn' lib/data/pipeline.cpp $units 1 'TextNoise.*' \
  'longer_of(lengths_of(made), drawn)' \
  'lengths_of(made)'
mutant concatenate_growth 'concatenate ignores growth' lib/data/transforms/concatenate.cpp $units 1 'Concatenate.*' \
  'grown(lengths, *config_.growth)' \
  'grown(lengths, 1)'
mutant prefix_source 'prefix ignores source' lib/data/transforms/prefix.cpp $units 1 'Prefix.*' \
  'example.source.insert(example.source.begin(), source_.begin(), source_.end());' \
  ''
mutant prefix_target 'prefix ignores target' lib/data/transforms/prefix.cpp $units 1 'Prefix.*' \
  'example.target.insert(example.target.begin(), target_.begin(), target_.end());' \
  ''
mutant prefix_probability 'prefix ignores probability' lib/data/transforms/prefix.cpp $units 1 'Prefix.*' \
  'random->uniform() >= probability_' \
  'random->uniform() >= .5'
mutant prefix_from '{from} is the target language' lib/data/transforms/prefix.cpp $units 1 'Prefix.*' \
  'key == from_mark ? languages.front() : ' \
  'key == from_mark ? languages.back() : '
mutant switchout_unchanged 'switchout changes nothing' lib/data/transforms/switchout.cpp $units 1 'Switchout.*' \
  'ids[place] = draw_one(random, live.at(static_cast<std::size_t>(side)))' \
  'ids[place] = (static_cast<void>(draw_one(random, live.at(static_cast<std::size_t>(side)))), ids[place])'
mutant noise_of_ids_temperature 'switchout, token_drop and token_mask ignore temperature' lib/data/transforms/id_noise.cpp $units 1 'Switchout.*:TokenDrop.*:TokenMask.*' \
  'narrow<std::int64_t>(noise_.spared), noise_.temperature)' \
  'narrow<std::int64_t>(noise_.spared), 1)'
mutant noise_of_ids_sides 'switchout, token_drop and token_mask ignore sides' lib/data/transforms/id_noise.cpp $units 1 'Switchout.*:TokenDrop.*:TokenMask.*' \
  'change_ids(example, noise_.sides,' \
  'change_ids(example, Sides::source,'
mutant token_drop_unchanged 'token_drop changes nothing' lib/data/transforms/token_drop.cpp $units 1 'TokenDrop.*' \
  '    remove(ids);
' \
  ''
mutant token_drop_all 'token_drop may remove all' lib/data/transforms/token_drop.cpp $units 1 'TokenDrop.*' \
  '.spared = 1' \
  '.spared = 0'
mutant token_mask_unchanged 'token_mask changes nothing' lib/data/transforms/token_mask.cpp $units 1 'TokenMask.*' \
  'ids[place] = masks.at(static_cast<std::size_t>(side));' \
  'static_cast<void>(place);'
mutant token_mask_piece 'token_mask ignores mask_piece' lib/data/transforms/token_mask.cpp $units 1 'TokenMask.*' \
  'id_of_piece(tokenizer, mask_piece, type)' \
  'id_of_piece(tokenizer, "<mask>", type)'
mutant denoise_unchanged 'denoise adds no noise' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'if (random == nullptr || example.source.empty())' \
  'if (random != nullptr || example.source.empty())'
mutant denoise_target 'denoise keeps the target' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  '    example.target = example.source;
' \
  ''
mutant denoise_objective 'denoise ignores objective' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'if (config_.objective == DenoiseObjective::mass)
' \
  'if (config_.lambda < 0)
'
mutant denoise_permute 'denoise ignores permute' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'random.uniform() < config_.permute' \
  'random.uniform() < .0'
mutant denoise_rotate 'denoise ignores rotate' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'random.uniform() < config_.rotate' \
  'random.uniform() < .0'
mutant denoise_insert 'denoise ignores insert' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'insert_masks(ids, share_of(ids.size(), config_.insert), random);' \
  'insert_masks(ids, 0, random);'
mutant denoise_mask 'denoise ignores mask' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'share_of(units.size(), config_.mask)' \
  'share_of(units.size(), .3)'
mutant denoise_mass_mask 'denoise ignores mask with mass' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'share_of(example.source.size(), config_.mask)' \
  'share_of(example.source.size(), .3)'
mutant denoise_mass_loss 'mass: all pieces bear loss' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'example.loss.assign(example.source.size(), false)' \
  'example.loss.assign(example.source.size(), true)'
mutant denoise_random 'denoise ignores random' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'config_.random > 0 && random' \
  'config_.random > 1 && random'
mutant denoise_span 'denoise ignores span word' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'config_.span == MaskedSpan::subword ||' \
  'config_.span != MaskedSpan::poisson ||'
mutant denoise_poisson 'denoise ignores span poisson' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'if (config_.span != MaskedSpan::poisson) {' \
  'if (config_.lambda > 0) {'
mutant denoise_lambda 'denoise ignores lambda' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  '< config_.lambda;)' \
  '< 3;)'
mutant denoise_replace_length 'denoise ignores replace_length' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'config_.replace_length < 0 ? pieces : static_cast<std::size_t>(config_.replace_length)' \
  'pieces > 0 ? 1 : 0'
mutant denoise_mask_piece 'denoise ignores mask_piece' lib/data/transforms/denoise.cpp $units 1 'Denoise.*' \
  'id_of_piece(tokenizer, config.mask_piece,' \
  'id_of_piece(tokenizer, "<mask>",'
mutant context_source_previous 'context ignores source_previous' lib/data/transforms/context.cpp $units 1 'Context.*' \
  'Side::source, config_.source_previous' \
  'Side::source, 3'
mutant context_target_previous 'context ignores target_previous' lib/data/transforms/context.cpp $units 1 'Context.*' \
  'Side::target, config_.target_previous' \
  'Side::target, 0'
mutant context_max_pieces 'context ignores max_pieces' lib/data/transforms/context.cpp $units 1 'Context.*' \
  '> static_cast<std::size_t>(config_.max_pieces)' \
  '> std::size_t{200}'
mutant context_separator 'context ignores separator' lib/data/transforms/context.cpp $units 1 'Context.*:Prefix.Names*' \
  'id_of_piece(own, config.separator,' \
  'id_of_piece(own, "<sep>",'
mutant context_loss 'context bears loss' lib/data/transforms/context.cpp $units 1 'Context.*' \
  'lines.size(), false);' \
  'lines.size(), true);'
mutant source_prefix_ignored 'the key source_prefix does nothing' lib/data/data_config.cpp $units 1 'SourcePrefix.*' \
  'if (!corpus.source_prefix.empty())' \
  'if (corpus.source_prefix.size() > 9)'
mutant prefix_probability_ignored 'the key prefix_probability does nothing' lib/data/data_config.cpp $units 1 'SourcePrefix.*' \
  ', .probability = corpus.prefix_probability' \
  ''
mutant symbols_ignored 'tokenizer_training.symbols does nothing' lib/data/data_config.cpp $units 1 'Symbols.*' \
  'symbols.insert(config.tokenizer_training->symbols.begin(), config.tokenizer_training->symbols.end());' \
  'static_cast<void>(config);'
mutant symbols_of_transforms_ignored 'pieces of transforms are not trained' lib/data/data_config.cpp $units 1 'Symbols.*' \
  'for (const std::string& piece : transform.pieces(languages)) symbols.insert(piece);' \
  'static_cast<void>(transform), static_cast<void>(languages);'
mutant symbols_not_trained 'symbols are cut' lib/data/tokenizer_training.cpp $units 1 'Symbols.*' \
  'if (!symbols.empty()) settings' \
  'if (symbols.size() > 99) settings'
mutant symbols_not_in_digest 'symbols do not tell tokenizers apart' lib/data/tokenizer_training.cpp $units 1 'Symbols.*' \
  'hasher.update(" " + symbol);' \
  'static_cast<void>(symbol);'
mutant context_not_planned 'rows are planned without the lines before' lib/data/pipeline.cpp $units 1 'Pipeline.PlansWhatIsAdded*' \
  'add_change(plan.longest, before, lengths_of(made));' \
  'static_cast<void>(before);'
mutant empty_hidden 'a prefix hides that a line is empty' lib/data/pipeline.cpp $units 1 'SourcePrefix.*' \
  'if (i == tokenizer_at_ && is_empty)' \
  'if (i + 1 == transforms_.size() && is_empty)'
mutant documents_run_on 'lines of another document are context' lib/data/pipeline.cpp $units 1 'DocumentLines.*' \
  'return lines_.clear();' \
  'return;'
