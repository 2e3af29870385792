# shellcheck shell=bash
# Bugs that models of several tasks may have, and the tests that see them; sourced by scripts/mutants.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

plans=unit/unit_plan specs=unit/unit_spec trained=mpi/mpi_train stored=unit/unit_interchange

mutant modular_zeros_too_soon 'zeros are written into a buffer that is still being summed' lib/plan/step_plan.cpp $plans 1 'Routes.*' \
  '      take_buffer(unit, op);
    }
    reducing_' '    }
    reducing_'
mutant modular_slice_too_soon 'a slice is written into a buffer that is still being gathered' lib/plan/step_plan.cpp $plans 1 'Routes.*' \
  'if (unneeded != none) op.waits_for.push_back(unneeded);' ''
mutant modular_gather_left 'a gather for other ranks is not over when the step is' lib/plan/step_plan.cpp $plans 1 'Routes.*' \
  'if (unneeded != none) norm.waits_for.push_back(unneeded);' ''
mutant modular_own_sums_alone 'a rank takes part in the sums of its own route alone' lib/plan/step_plan.cpp $plans 1 'Routes.*' \
  'if (each ? last_of_slot_' 'if (!what.own || each ? last_of_slot_'
mutant modular_one_route 'all micro-batches take the first route' lib/plan/step_plan.cpp $trained 2 'Hierarchies/RoutesOnRanks.Train*' \
  'canonical_rank) slot.own = static_cast<std::size_t>(route);' 'canonical_rank) slot.own = 0;'
mutant modular_shared_by_all 'components of a stack have one name' lib/spec/sharing.cpp $specs 1 'Sharing.*' \
  'return of_target(task.target);' 'return of_target(task.source);'
mutant modular_stored_as_plain 'a route reads the blocks of all tasks' lib/spec/route_model.cpp $specs 1 'Sharing.*' \
  'is_of_block && unit == visit.units.front()' 'false && is_of_block && unit == visit.units.front()'
mutant modular_idle_counted 'a component that no task uses counts an update' lib/train/step_plans.cpp $trained 1 'ModularRun.Counts*' \
  'if (!idle_.contains(c)) ++state' '++state'
mutant modular_validates_one_route 'all validation sets take the first route' lib/train/evaluate.cpp $trained 1 'ModularRun.Counts*' \
  'for (data::Batch& batch : sets[i].batches) batch.route = routes[i];' ''
mutant modular_named_part_frozen 'freeze takes patterns of names alone' lib/spec/fine_tuning.cpp $trained 1 'ModularRun.ALanguage*' \
  ' && !is_of(parameter, patterns[i])' ''
mutant task_of_any_component 'a task has the blocks of every component' lib/spec/route_model.cpp $specs 1 'Sharing.*' \
  'own->second != component) continue;' 'own->second.size() > component.size() + 99) continue;'
mutant task_without_its_component 'a task that lacks a component is taken' lib/spec/route_model.cpp $specs 1 'Sharing.*' \
  '!found.contains(own.first); });' '!found.contains(own.first) && found.empty(); });'
mutant task_keeps_stacks 'the configuration of a task has the stacks of all' lib/model/stored_model.cpp $stored 1 'StoredTasks.*' \
  'own = spec::as_plain(*config)' 'own = *config'
mutant task_adapters_unread 'a route does not read the adapters of its blocks' lib/spec/route_model.cpp $specs 1 'Lora.ARoute*' \
  'visit.units.push_back(model.spec.units.size());' ''
mutant adapters_next_to_random 'lora freezes weights that nobody has trained' lib/train/init_weights.cpp $trained 1 'ModularRun.AdaptersNeed*' \
  'if (config.lora && !untrained.empty())' 'if (config.lora && fresh.size() > 1000)'
mutant stop_waits_for_translations 'a stop waits until all lines are translated' lib/train/evaluate.cpp $trained 1 'Validation.Translates*' \
  'stopped = !left.empty() && model.stops && model.stops(ranks);' ''
mutant stop_forgets_validation 'a validation that was left is not made up for' lib/train/validator.cpp $trained 1 'Validation.IsLeft*' \
  'if (!evaluate_all(false, state.step, model, all)) return std::nullopt;' 'if (!evaluate_all(false, state.step, model, all)) { state.owes_validation = false; return std::nullopt; }'
mutant task_by_its_own_names 'weights of a task are looked up by the names of a plain model' lib/spec/route_model.cpp $stored 1 'StoredTasks.*' \
  '? prefix + parameter.name.substr(visit.prefix.size())' '? (prefix.empty() ? prefix : parameter.name)'
mutant sharing_unchecked 'tasks of a model whose stacks all share are taken' lib/model/stored_spec.cpp $stored 1 'StoredTasks.*' \
  'if (spec::is_plain(shape) != sharing.tasks.empty())' 'if (!spec::is_plain(shape) && sharing.tasks.empty())'
mutant modular_normalised_by_all 'loss.normalise: component divides by all tokens' lib/train/runner.cpp $trained 1 'Hierarchies/RoutesOnRanks.Components*' \
  'tokens / kept[c]' 'tokens / kept_in_all'
mutant modular_norm_before_normalising 'the norm is that of gradients before loss.normalise' lib/train/runner.cpp $trained 1 'Hierarchies/RoutesOnRanks.Components*' \
  'squares[c] * rescale[c] * rescale[c]' 'squares[c]'
mutant tasks_begin_by_place 'a run with other tasks goes on in each corpus by its place in the list' lib/train/other_tasks.cpp unit/unit_train 1 'OtherTasks.*' \
  'is_new ? 0 : before.drawn[at]' 'is_new ? 0 : before.drawn[pool.drawn.size()]'
mutant tasks_of_damaged_checkpoint 'new components have what a damaged checkpoint had' lib/train/trainer.cpp $trained 1 'OtherTasks.*' \
  '          run_.host->complete_copy();' ''
mutant embeddings_of_one_language 'a task reads the embeddings of the language that it writes' lib/spec/embeddings.hpp $specs 1 'Sharing.*' \
  'return kind == VisitKind::source ? task.source : task.target;' 'return kind == VisitKind::source ? task.target : task.target;'
mutant embeddings_one_head 'of the outputs of several languages, only the last one writes a gradient' lib/plan/step_plan.cpp $plans 1 'Routes.*' \
  '== routes_[route].back();' '== shape_.visit_units.size() - 1 && route < routes_.size();'
mutant embeddings_need_a_bias 'a language that is only read needs a gradient for the bias of its output' lib/train/runner.cpp $trained 2 'PlacedRun.Learns*' \
  ' || lacking == nullptr || may_lack,' ' || lacking == nullptr || (may_lack && false),'
mutant rank_without_micro_batch 'a rank without a micro-batch does not wait for the weights of the next' lib/plan/step_plan.cpp $plans 1 'Routes.*' \
  'is_waited_for_[unit] = !reuses_;' 'is_waited_for_[unit] = true;'
