# shellcheck shell=bash
# Bugs that batches may have, and those of several routes, and the tests that see them; sourced by scripts/mutants.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

batches=unit/unit_data

mutant routes_mixed 'micro-batches mix routes' lib/data/batch_plan.cpp $batches 1 'BatchRoutes.MicroBatches*' \
  ' || next.route != piece->route' ''
mutant routes_not_dealt 'steps are neighbours in the order of routes' lib/data/batch_plan.cpp $batches 1 'BatchRoutes.EachStep*' \
  'deal(static_cast<std::size_t>(settings.micro_batches));' ''
mutant routes_fill_first_steps 'what steps cannot have alike begins anew for each route' lib/data/batch_plan.cpp $batches 1 'BatchRoutes.EachStep*' \
  'for (std::size_t i = 0; i < pieces % full; ++i, step' 'step = 0; for (std::size_t i = 0; i < pieces % full; ++i, step'
mutant routes_next_step 'what steps cannot have alike is not spread' lib/data/batch_plan.cpp $batches 1 'BatchRoutes.AStep*' \
  'while (std::gcd(stride, n) != 1) ++stride;' 'stride = 1;'
mutant routes_last_step 'the short step takes the last route' lib/data/batch_plan.cpp $batches 1 'BatchRoutes.EachStep*' \
  'rest * end / count - rest * begin / count' '(end == count ? std::min(rest, end - begin) : 0)'
mutant routes_lost_by_draws 'a batch that is drawn has no route' lib/data/pool_source.cpp $batches 1 'BatchRoutes.HoldWhere*' \
  'batch.route = micro_batch.route;
    batch.without_noise' 'batch.without_noise'
mutant routes_missing_micro_batch 'micro-batches that a step lacks have route 0' lib/data/pool_source.cpp $batches 1 '*RoutedLoader*' \
  'maker_.settings_.sizes.micro_batches), -1);' 'maker_.settings_.sizes.micro_batches), 0);'
mutant routes_small_pool 'a pool may have less than a micro-batch of a route' lib/data/pool_source.cpp $batches 1 'BatchRoutes.APool*' \
  'pieces_of_route * route_count()' 'pieces_of_route'
mutant tokenizers_exchanged 'the sides of a direction have each other'"'"'s tokenizer' lib/data/tokenizer.cpp $batches 1 'LanguageTokenizers.*' \
  'own(languages.front()), &target = own(languages.back())' 'own(languages.back()), &target = own(languages.front())'
mutant tokenizers_of_own_size 'each language has a vocabulary of its own' lib/data/tokenizer.cpp $batches 1 'LanguageTokenizers.*' \
  '    for (auto& [part, own] : parts.each) own.apply(rule, name_of_part(name, part));' ''
mutant tokenizer_trained_on_all 'a tokenizer of a language is trained on both sides of a record' lib/data/tokenizer_training.cpp $batches 1 'TokenizerTraining.*' \
  'if (text.source) add_parts' 'add_parts'
mutant masks_of_one_side 'token_mask takes the piece of one side for both' lib/data/transforms/id_noise.hpp $batches 1 'LanguageTokenizers.*' \
  'make(tokenizer.side(side))' 'make(tokenizer.side(Side::source))'
mutant tokenizers_of_any_language 'embeddings are taken of any tokenizer' lib/train/init_weights.cpp mpi/mpi_train 1 'TokenizersOfLanguages.*' \
  '    if (got == wanted) continue;' '    continue;'
mutant tokenizers_may_change 'a run goes on with another tokenizer of a language' lib/model/stored_spec.cpp mpi/mpi_train 1 'TokenizersOfLanguages.*' \
  '*same == language.value();' 'language.value().is_string();'
mutant split_without_late_corpora 'a corpus that begins later is not validated' lib/train/evaluate.cpp mpi/mpi_train 2 'ModularRun.TheEnd*' \
  '    corpus.start = {};
' ''
mutant split_of_all 'the set of a task is that of all corpora' lib/data/token_shards.cpp mpi/mpi_train 2 'ModularRun.TheEnd*' \
  '    if (only.value_or(c) != c) continue;
' ''
mutant pages_kept 'pages of token shards are never given back' lib/data/token_shards.cpp $batches 1 'LoaderOfPairs.GivesTheFiles*' \
  'shards_[before].release_pages();' ';'
mutant pages_of_lengths_kept 'pages of lengths stay while a pool is planned' lib/data/pool_source.cpp $batches 1 'PoolMaker.PlansFile*' \
  '      shards_.go_to(draw.example);' ''
mutant documents_as_drawn 'the documents of a pool are looked up as they are drawn' lib/data/pool_source.cpp $batches 1 'PoolMaker.PlansFile*' \
  'std::ranges::sort(places, {}, ' 'if (false) std::ranges::sort(places, {}, '
mutant rows_in_order 'the parts of a document follow each other in training' lib/data/pool_source.cpp $batches 1 'LoaderOfRows.*' \
  '    RandomStream{key.seed, row_shuffle, key.epoch, key.pool}.shuffle(rows);' ''
mutant sorted_by_one_side 'examples of one longest side come in any order of the other' lib/data/batch_plan.cpp $batches 1 'BatchPlan.FillsBatches*' \
  'longest % 2 == 0 ? difference : -difference' 'k.lengths.target * 0'
mutant corpora_of_no_rows 'the corpus of a row is lost' lib/data/pool_source.cpp $batches 1 '*RandomCorpora.SayOf*' \
  'pair.corpus = drawn.corpus' 'pair.corpus = 0 * drawn.corpus'
mutant corpora_of_documents 'the corpus of a document is that of the first' lib/data/pool_source.cpp $batches 1 '*RandomCorpora.SayOf*' \
  'part.corpus = corpora_[place]' 'part.corpus = corpora_.front()'
mutant corpora_as_one 'the losses of all corpora are one' lib/train/runner.cpp mpi/mpi_train 2 '*RoutesOnRanks.Corpora*' \
  'batch.corpora.at(i))' '0 * batch.corpora.at(i))'
