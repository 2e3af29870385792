# shellcheck shell=bash
# Bugs that models may have whose tasks are on some of the ranks, and the tests that see them; sourced by scripts/mutants.
placed=mpi/mpi_train plans=unit/unit_plan

mutant placed_dealt_greedily 'the busiest rank gives nothing away' lib/data/dealing.cpp unit/unit_data 1 'Dealing.*' \
  'while (improve()) {' 'while (false && improve()) {'
mutant placed_out_of_order 'a rank has two micro-batches of a slot' lib/data/dealing.cpp unit/unit_data 1 'Dealing.*' \
  'std::ranges::upper_bound(ranks, last)' 'std::ranges::lower_bound(ranks, last)'
mutant placed_wrong_numbers 'dropout of a micro-batch depends on its slot' lib/train/runner.cpp $placed 2 'PlacedRun.Elastic*' \
  ': step.numbers[static_cast<std::size_t>(slot)];' ': slot;'
mutant placed_owners_of_group 'owners are stored by their numbers in the group' lib/partition/flat_space.cpp unit/unit_partition 1 'FlatSpace.*' \
  'owner = members[static_cast<std::size_t>(owner)];' 'owner += 0;'
mutant placed_layout_of_all 'a component is sharded over all ranks' lib/plan/placement.cpp $plans 1 'Placement.*' \
  'own.empty() ? all : all.part(own);' 'all;'
mutant placed_validates_with_absent 'a validation gathers components that the rank does not have' lib/plan/step_plan.cpp $placed 2 'PlacedRun.Learns*' \
  '.idle = std::move(idle), .slots' '.slots'
mutant placed_trains_with_absent 'a step gathers components that the rank does not have' lib/train/step_plans.cpp $placed 2 'PlacedRun.Learns*' \
  '    choices.idle = absent_;' ''
mutant placed_anew 'auto forgets the placement of the run that it resumes' lib/train/run_parts.cpp $placed 2 'PlacedRun.Keeps*' \
  'if (!kept.placement.empty()) config.placement' 'if (false) config.placement'
mutant placed_all_ranks_validate 'the lines of a set are dealt to all ranks' lib/train/evaluate.cpp $placed 2 'PlacedRun.Learns*' \
  'narrow<int>(std::ssize(set.ranks));' 'all_ranks;'
mutant placed_memory_of_all 'the plan counts components that the rank does not have' lib/plan/memory_model.cpp $placed 2 'PlacedRun.Learns*' \
  'canonical_rank ? placement.rank_in(unit.component, *canonical_rank) : 0' '0'
mutant placed_on_equal_nodes 'the plan takes the nodes of a component for equally large' lib/plan/scheme_plan.cpp $placed 3 '*WholeTraining.HoldsWhat*' \
  'even ? 1' 'even || rank >= 0 ? 1'
mutant placed_slivers 'a rank takes on a route for a moment of its time' lib/plan/placement_search.cpp $plans 1 'Placement.*' \
  'sliver = 0.04;' 'sliver = 0;'
mutant placed_without_exchanges 'the search stops at its first orders' lib/plan/placement_search.cpp $plans 1 'Placement.TheSearchExchanges*' \
  'i < tries;' 'i < 0 * tries;'
mutant placed_units_unchecked 'ranks of a stored unit may be in any order' lib/checkpoint/manifest_layout.cpp unit/unit_checkpoint 1 'Manifest.*' \
  'members.back() > members[members.size() - 2]' 'true'
