# shellcheck shell=bash
# Bugs that a soup may have, and the tests that see them; sourced by scripts/mutants.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

recipes=unit/unit_soup on_ranks=mpi/mpi_soup

mutant soup_decay_schedule 'cosine weights as linear does' lib/soup/recipe.cpp $recipes 1 'Recipes.*' \
  'return (1 + std::cos(std::numbers::pi * t)) / 2;' 'return 1 - t;'
mutant soup_spacing_ignored 'last_k takes neighbours' lib/soup/recipe.cpp $recipes 1 'Recipes.*' \
  '.step >= spacing) members' '.step >= 0) members'
mutant soup_nan_accepted 'an input with NaN is averaged' lib/soup/averager.cpp $recipes 1 '*Refusals*' \
  'if (!checkpoint::all_finite(piece))' 'if (false)'
mutant soup_of_another_tokenizer 'a checkpoint of another tokenizer is averaged' lib/soup/inputs.cpp $recipes 1 '*Refusals*' \
  '{"tokenizer_digest", "tokenizer"}' '{"arch", "tokenizer"}'
mutant soup_not_synced 'a shard of a soup is committed unsynced' lib/checkpoint/write.cpp $recipes 1 'SoupFaults.Every*' \
  '    file.sync();
    file.close();
  };' '    file.close();
  };'
mutant soup_greedy_by_the_best 'greedy compares with the best alone, not the members so far' lib/soup/recipe.cpp $recipes 1 'Greedy.*' \
  '    choice.loss = std::move(with);
' ''
mutant soup_divided_first 'weights are divided before the sum' lib/soup/averager.cpp $on_ranks 1 'SoupOnRanks.*' \
  'mean_.mixture.weights[k]);
  const double divisor = as_it_is ? 1.0 : divisors_[unit];' \
  'mean_.mixture.weights[k] / mean_.mixture.divisor);
  const double divisor = 1.0;'
mutant soup_components_divided_by_all 'a component that few checkpoints have is divided by the weights of all' lib/soup/averager.cpp $on_ranks 1 \
  'SoupOfComponents.*' 'divisors_.push_back(all ? mean.mixture.divisor : sum);' 'divisors_.push_back(mean.mixture.divisor);'
mutant soup_of_other_tasks 'checkpoints of other tasks are averaged if the first one has all parameters' lib/soup/inputs.cpp $recipes 1 '*Refusals*' \
  '    check_tasks(first, other);' '    if (other.step() < 0) check_tasks(first, other);'
mutant soup_bf16_rounded_twice 'a bf16 mean is rounded to fp32 first' lib/soup/averager.cpp $on_ranks 1 'SoupOnRanks.*' \
  'bf16_from_f64(sum[i] / divisor)' 'bf16_from_f32(static_cast<float>(sum[i] / divisor))'
mutant soup_moments_mixed_up 'second moments are the mean of the first ones' lib/soup/averager.cpp $on_ranks 1 'SoupOnRanks.*' \
  '->stream(tensor.name));' '->stream(tensors[tensor.name == spec::weights_tensor ? 0 : 1].name));'
mutant soup_equal_loss_accepted 'greedy takes what gains nothing' lib/soup/validation.cpp $on_ranks 1 'ValidatedSoups.*' \
  'now.loss - with.loss > recipe' 'now.loss - with.loss >= recipe'
mutant soup_worse_committed 'a soup without a loss is committed' lib/soup/validation.cpp $on_ranks 1 'ValidatedSoups.*' \
  'loss <= best ||' '!(loss > best) ||'
mutant soup_reports_the_first 'the report compares with the first member, not the best' lib/soup/validation.cpp $on_ranks 1 'ValidatedSoups.*' \
  'inputs_.readers[static_cast<std::size_t>(best - comparison.losses.begin())]' 'inputs_.readers.front()'
mutant soup_journal_of_another 'losses of another evaluator are believed' lib/soup/validation.cpp $on_ranks 1 'ValidatedSoups.*' \
  'hasher.update(identity_).update(' 'hasher.update('
