#!/usr/bin/env bats
# What can happen to a training job, under a real Slurm: each job goes on from its last checkpoint to the bits of an undisturbed
# run, or ends with the documented code. Runs take three of four nodes, so that one is to spare.

# shellcheck disable=SC2034,SC2154 # cluster.bash reads or assigns them
bats_require_minimum_version 1.5.0
load cluster

setup_file() {
  echo 'PartitionName=patient Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=REQUEUE GraceTime=30' >"$BATS_FILE_TMPDIR/more"
  start_cluster --nodes 4 --conf "$BATS_FILE_TMPDIR/more"
  "$SANDBOX" status >/dev/null 2>&1 || return 0 # setup() skips
  on_cluster
  train 3 whole "${length[@]}"
  within 100 ended
}
teardown_file() { "$SANDBOX" down; }

length=(--set schedule.length=60 --set checkpoint.interval=5 --set comm.timeout_s=10)

setup() { on_cluster; }

teardown() { mend_cluster; }

run_until() { # run_until STEP RUN WORD…
  local step=$1
  shift
  train 3 "$@" "${length[@]}"
  within 100 log_has "step $step "
}

launched_by() { # launched_by NAME WORDS: a tree of that name, whose site file of that name launches with these words
  mkdir -p "$1"
  cp -rL jobs "$1/jobs"
  ln -sfn "$PWD/apps" "$1/apps"
  echo "launch=($2)" >"$1/jobs/sites/$1.sh"
}

waits_for_its_restart() { [ -s "runs/$name/exit.$job.0" ] && pending; }

@test "the time limit: saved before it, and continued" {
  with=(--time=1 --signal=B:USR1@40)
  ARGOSY_STOP_NOTICE_S=40 train 3 limit --set schedule.length=100000
  within 90 waits_for_its_restart
  [[ $(verdict 0) == "75 "* ]]
  [ -e "runs/limit/checkpoints/$(printf %09d "$(verdict 0 | cut -d' ' -f2)")/MANIFEST.json" ]
  log_has 'stopping .*after step .*: \(SIGUSR1\|the allocation ends in\|another rank was asked\)' # which rank 0 sees first
  start_again
  within 30 log_has "resumed from runs/limit/checkpoints/"
}

@test "the end of the allocation stops a run that no signal reaches" {
  with=(--time=1 --signal=B:USR1@0)
  ARGOSY_STOP_NOTICE_S=45 train 3 own --set schedule.length=100000
  within 60 waits_for_its_restart
  log_has 'stopping .*after step .*: the allocation ends in 4[0-5] s'
}

@test "a stop in loading, in a validation, in a save: nothing is lost" {
  train 3 moments "${length[@]}" --set validation.interval=2
  seen() { [ "$(grep -c "$moment" train16."$job".out 2>/dev/null)" -gt "${had:-0}" ]; }
  stopped() { [ -s "runs/moments/exit.$job.$restart" ] && pending; }
  restart=0
  for moment in 'ranks: 3, nodes: 3,' ' validation ' 'saved runs/moments'; do
    had=$(grep -c "$moment" train16."$job".out 2>/dev/null) || true
    if ((restart)); then start_again; fi
    within 100 seen
    scancel --batch --signal=USR1 "$job"
    within 60 stopped
    [[ $(verdict $restart) == "75 "* ]]
    restart=$((restart + 1))
  done
  start_again
  same_bits
}

@test "the stop file: saved, not requeued, and no start while it is there" {
  run_until 12 asked --set stop.file=halt
  touch halt
  within 60 ended
  [[ $(verdict 0) =~ ^75\ [0-9]+\ stop_file$ ]]
  log_has 'the job is not requeued; to resume, remove the file'
  [ -e "runs/asked/checkpoints/$(printf %09d "$(verdict 0 | cut -d' ' -f2)")/MANIFEST.json" ]
  train 3 asked "${length[@]}" --set stop.file=halt
  within 60 ended
  [[ $(verdict 0) == "2 "* ]]
  log_has 'stop.file: the stop file halt exists'
}

@test "preemption without a word: from the last checkpoint" {
  run_until 12 preempted
  sbatch --partition=high --nodes=4 --exclusive --output=/dev/null --wrap 'sleep 2'
  start_again
  same_bits
}

@test "preemption with a grace time: nothing is lost" {
  with=(--partition=patient)
  run_until 12 graceful
  sbatch --partition=high --nodes=4 --exclusive --output=/dev/null --wrap 'sleep 2'
  start_again
  [[ $(verdict 0) == "75 "* ]]
  same_bits
}

@test "a node that is set down" {
  run_until 12 down
  scontrol update NodeName=node2 State=DOWN Reason=test
  start_again
  same_bits
}

@test "a node that drops dead, again and again in a save" {
  run_until 12 dead --set checkpoint.interval=1
  "$SANDBOX" kill-node 3
  scontrol update NodeName=node3 State=DOWN Reason=test
  start_again
  within 60 log_has "step 30 "
  same_bits
  "$SANDBOX" start-node 3
}

@test "a slurmd that dies: the job runs on" {
  run_until 12 slurmd
  "$SANDBOX" kill-slurmd 2
  "$SANDBOX" start-node 2
  within 100 ended
  [ "$(verdict 0)" = "0 60" ]
  [ "$(weights slurmd 000000060)" = "$(weights whole 000000060)" ]
}

@test "a controller that dies: the job runs on, and its dependant starts" {
  train 3 controller --set schedule.length=250
  behind=$(sbatch --parsable --dependency=afterok:"$job" --output=behind.out --wrap 'echo well')
  within 100 log_has "step 12 "
  sleep 6 # slurmctld writes its state every five seconds; a younger job would be launched twice, and held
  "$SANDBOX" restart-controller
  within 100 test -e "runs/controller/exit.$job.0"
  [ "$(verdict 0)" = "0 250" ]
  within 60 grep -qsx well behind.out
  [ -n "$behind" ]
}

@test "a rank that is killed: nothing hangs, the next start continues, and the dependant starts after it" {
  run_until 12 killed
  behind=$(sbatch --parsable --dependency=afterok:"$job" --output=after.out --wrap 'echo well')
  "$SANDBOX" exec kill -KILL "$(rank 1)"
  within 30 pending
  start_again
  same_bits
  [ -n "$behind" ]
  within 60 grep -qsx well after.out
}

@test "a launch that fails is repeated" {
  # shellcheck disable=SC2016 # for the shell inside
  launched_by weak "bash -c 'if ((!SLURM_RESTART_COUNT)); then exec srun false; fi; exec srun --mpi=pmi2 env --block-signal=USR1 \"\$@\"' -"
  ARGOSY_ROOT=$PWD/weak ARGOSY_SITE=weak train 3 weak "${length[@]}"
  start_again
  [ ! -e "runs/weak/exit.$job.0" ]
  log_has 'bash ended with 1 before the program wrote its exit code'
  within 100 ended
  [ "$(verdict 1)" = "0 60" ]
}

@test "a rank that stands still: code 5 within the deadline, its node named, and a new start" {
  run_until 12 still
  "$SANDBOX" exec kill -STOP "$(rank 1)"
  within 60 pending
  [[ $(verdict 0) == "5 "* ]]
  log_has 'no answer from rank 1 on node[1-4]'
  start_again
  same_bits
}

@test "a cancelled job is not revived" {
  run_until 12 cancelled
  scancel "$job"
  within 30 ended
  grep -q "JobState=CANCELLED" <<<"$(scontrol show job "$job")"
}

@test "a run directory that another job uses: refused with its name, and the first goes on" {
  train 2 used "${length[@]}"
  first=$job
  within 60 log_has "step 5 "
  train 2 used "${length[@]}"
  within 60 ended
  [ "$(verdict 0 | cut -d' ' -f1)" = 2 ]
  log_has "the run directory .* is in use by a job on node[1-4] .*Slurm job $first"
  job=$first
  within 100 ended
  [ "$(verdict 0)" = "0 60" ]
}

@test "GPUs that no node has: a chain is refused as a whole" {
  run -2 jobs/chain.sh configs/tiny.json
  [[ $output == *'Slurm refuses the job of train; nothing is queued'* ]]
  run -0 squeue -h
  [ -z "$output" ]
}

@test "no progress: three starts, then 70" {
  stand_in stuck <<<'sleep 600'
  job=$(ARGOSY_ROOT=$PWD/stuck sbatch --parsable --nodes=3 --ntasks-per-node=1 --gpus-per-node=0 jobs/train_16node.sh)
  starts() { [ "$(grep -c . "runs/stuck/$job/starts.$job" 2>/dev/null)" = "$1" ]; }
  for count in 1 2 3; do
    within 60 starts $count
    scontrol requeue "$job"
    start_again
  done
  within 60 ended
  log_has '3 starts in a row'
  grep -q "ExitCode=70:0" <<<"$(scontrol show job "$job")"
}

@test "ranks that end one after the other: requeued every time" {
  stand_in race <<'TOOL' # as with apps/train, no rank ends before the exit file is written
trap '' USR1
if [ "$SLURM_PROCID" = 0 ]; then echo '75 1' >"$ARGOSY_EXIT_FILE"; fi
until [ -s "$ARGOSY_EXIT_FILE" ]; do sleep 0.05; done
sleep "$((RANDOM % 3)).$((RANDOM % 10))"
exit 75
TOOL
  jobs=()
  for _ in $(seq 20); do
    jobs+=("$(ARGOSY_ROOT=$PWD/race sbatch --parsable --nodes=2 --ntasks-per-node=1 --gpus-per-node=0 jobs/train_16node.sh)")
  done
  all_requeued() { # the first job that is not becomes `job`, whose output a failure shows
    for job in "${jobs[@]}"; do
      shown=$(scontrol show job "$job")
      grep -q Restarts=1 <<<"$shown" || return 1
    done
  }
  within 150 all_requeued || { echo "$shown" && false; }
}

@test "a launcher that MPI does not know: both sizes are named" {
  launched_by none 'srun --mpi=none env --block-signal=USR1'
  ARGOSY_ROOT=$PWD/none ARGOSY_SITE=none train 3 none
  within 60 ended
  [ "$(verdict 0 | cut -d' ' -f1)" = 2 ]
  log_has 'asks for 3 ranks, but MPI started 1;'
}
