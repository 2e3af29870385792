#!/usr/bin/env bats
# jobs/train_16node.sh with stand-ins for Slurm and apps/train: every row of the verdict table, restarts, signals, bad input.

# shellcheck disable=SC2154 # make_tree assigns them
bats_require_minimum_version 1.5.0
load stand_ins

setup() { make_tree; }

job() { submitted train_16node.sh "$@"; }

not_requeued() { if requeued; then return 1; fi; }
requeued() { grep -q '^scontrol requeue 42$' "$run_dir/calls"; }

@test "a finished run ends with 0 and is not requeued" {
  TOOL_SAYS='0 100' job
  [ "$status" -eq 0 ]
  not_requeued
}

@test "the launch line is the site's and the world is 128 ranks" {
  job
  grep -qx "srun --mpi=pmi2 --kill-on-bad-exit=1 env --block-signal=USR1 $root/apps/train $root/configs/mistral_7b.json" "$run_dir/calls"
  grep -qx ARGOSY_EXPECT_RANKS=128 "$run_dir/environment"
  grep -qx OMP_NUM_THREADS=1 "$run_dir/environment"
  grep -qx "ARGOSY_EXIT_FILE=$run_dir/exit.42.0" "$run_dir/environment"
}

@test "options of sbatch and environment shrink the job" {
  touch "$root/configs/tiny.json"
  SLURM_NTASKS=4 ARGOSY_CONFIG=configs/tiny.json OMP_NUM_THREADS=3 job
  grep -qx ARGOSY_EXPECT_RANKS=4 "$run_dir/environment"
  grep -qx OMP_NUM_THREADS=3 "$run_dir/environment"
  grep -q "apps/train configs/tiny.json$" "$run_dir/calls"
}

@test "words after the script go to the tool" {
  job --set seed=2
  grep -q "apps/train $root/configs/mistral_7b.json --set seed=2$" "$run_dir/calls"
}

@test "75 is requeued" {
  TOOL_SAYS='75 12' TOOL_CODE=75 job
  [ "$status" -eq 75 ]
  requeued
}

@test "75 stays 75 when Slurm refuses to requeue" {
  TOOL_SAYS='75 12' SCONTROL_CODE=1 job
  [ "$status" -eq 75 ]
}

@test "the exit file is believed before the launcher" {
  TOOL_SAYS='75 12' TOOL_CODE=143 job
  [ "$status" -eq 75 ]
  requeued
}

@test "without an exit file the launcher's code counts" {
  TOOL_CODE=139 job
  [ "$status" -eq 139 ]
  not_requeued
}

@test "2, 3, 4, 6 and 70 are never requeued" {
  for code in 2 3 4 6 70; do
    TOOL_SAYS="$code 12" TOOL_CODE=$code job
    [ "$status" -eq "$code" ]
    not_requeued
  done
}

restarted() { # restarted COUNT SAYS: the job's start of that number
  rm -f "$run_dir/calls"
  SLURM_RESTART_COUNT=$1 TOOL_SAYS=$2 TOOL_CODE=${2%% *} job
}

@test "5 is requeued twice without a newer commit, not a third time, and names the nodes" {
  restarted 0 '5 12'
  requeued
  [[ $output == *'node[1-16]'* ]]
  restarted 1 '5 12'
  requeued
  restarted 2 '5 12'
  [ "$status" -eq 5 ]
  not_requeued
}

@test "three stops in a row at one step end with 70" {
  mkdir -p "$run_dir/checkpoints/000000012"
  restarted 0 '75 12'
  requeued
  restarted 1 '75 12'
  requeued
  restarted 2 '75 12'
  [ "$status" -eq 70 ]
  [[ $output == *'3 times in a row at step 12'*'--time'* ]]
  [ "$(cat "$run_dir/exit.42.2")" = '70 12' ]
  not_requeued
}

@test "a newer commit starts the count again, also a permanent one" {
  for restart in 0 1; do restarted $restart '5 12'; done
  mkdir -p "$run_dir/export/000000020"
  for restart in 2 3; do restarted $restart '5 21'; done
  requeued
  restarted 4 '5 21'
  not_requeued
}

@test "what is no committed checkpoint is no progress" {
  for restart in 0 1 2; do
    mkdir -p "$run_dir/checkpoints/.tmp-00000001$restart-ab" "$run_dir/checkpoints/00000001$restart.bad"
    restarted $restart '75 12'
  done
  [ "$status" -eq 70 ]
}

@test "a job that Slurm itself starts again and again, killed each time, ends with 70" {
  for restart in 0 1 2; do restarted $restart '137 0'; done # no requeue of ours
  restarted 3 '0 1'
  [ "$status" -eq 70 ]
  [[ $output == *'3 starts in a row'*'step 0'* ]]
  [ ! -e "$run_dir/calls" ] # nothing was launched
  restarted 0 '0 1'         # another cluster's job of the same number
  [ "$status" -eq 0 ]
}

@test "words that say where to begin hold until there is a checkpoint" {
  words=(--resume some/soup --from-scratch --set seed=2 --abandon-newer)
  job "${words[@]}"
  grep -q "apps/train $root/configs/mistral_7b.json ${words[*]}$" "$run_dir/calls"
  SLURM_RESTART_COUNT=1 job "${words[@]}"
  [ "$(grep -c "mistral_7b.json ${words[*]}$" "$run_dir/calls")" = 2 ] # nothing saved yet
  mkdir -p "$run_dir/checkpoints/000000012"
  SLURM_RESTART_COUNT=2 job "${words[@]}"
  [ "$(tail -n 1 "$run_dir/calls")" = "srun --mpi=pmi2 --kill-on-bad-exit=1 env --block-signal=USR1 $root/apps/train $root/configs/mistral_7b.json --set seed=2" ]
}

@test "a controller that is away is asked again" {
  program "$bin/scontrol" <<'SCONTROL'
echo "scontrol $*" >>"$RUN_DIR/calls"
[ "$(grep -c scontrol "$RUN_DIR/calls")" = 3 ] || { echo 'Unable to contact slurm controller (connect failure)' && exit 1; }
SCONTROL
  TOOL_SAYS='75 12' job
  [ "$(grep -c 'scontrol requeue 42' "$run_dir/calls")" = 3 ]
}

@test "the exit file of another job of this number is not believed" {
  echo '0 100' >"$run_dir/exit.42.0"
  TOOL_CODE=139 job
  [ "$status" -eq 139 ]
}

@test "the end of the allocation reaches the program" {
  END_TIME=2026-11-22T12:00:00 job
  grep -qx "ARGOSY_DEADLINE=$(date -d 2026-11-22T12:00:00 +%s)" "$run_dir/environment"
  SLURM_JOB_END_TIME=1700000000 END_TIME=2026-11-22T12:00:00 job
  grep -qx ARGOSY_DEADLINE=1700000000 "$run_dir/environment"
  for end in NONE N/A ''; do
    END_TIME=$end job
    [ "$status" -eq 0 ]
    run ! grep -q ARGOSY_DEADLINE "$run_dir/environment"
  done
}

@test "a site that lacks a module or a launcher ends with 2" {
  echo 'module load nowhere || return' >"$root/jobs/sites/lacking.sh"
  ARGOSY_SITE=lacking job
  [ "$status" -eq 2 ]
  [[ $output == *'lacking.sh failed'* ]]
  echo 'launch=(apptainer exec --nv argosy.sif)' >"$root/jobs/sites/contained.sh"
  ARGOSY_SITE=contained job
  [ "$status" -eq 2 ]
  [[ $output == *'no apptainer here'* ]]
  [ ! -e "$run_dir/calls" ]
}

wait_until() { # wait_until COMMAND…
  for _ in $(seq 200); do
    if "$@"; then return 0; fi
    sleep 0.05
  done
  return 1
}

@test "USR1 reaches the program, and its 75 is requeued" {
  cd "$root" || return
  WAIT_FOR_USR1=1 TOOL_SAYS='75 7' TOOL_CODE=75 bash jobs/train_16node.sh &
  script=$!
  wait_until test -e "$run_dir/ready"
  kill -USR1 "$script"
  code=0
  wait "$script" || code=$?
  [ "$code" -eq 75 ]
  requeued
}

@test "TERM means that Slurm decides: the program's code, no requeue" {
  cd "$root" || return
  WAIT_FOR_USR1=1 TOOL_SAYS='75 7' TOOL_CODE=75 bash jobs/train_16node.sh &
  script=$!
  wait_until test -e "$run_dir/ready"
  kill -TERM "$script"
  sleep 0.3
  pkill -USR1 -f "^/bin/bash $root/apps/train" # Slurm signals the ranks itself
  code=0
  wait "$script" || code=$?
  [ "$code" -eq 75 ]
  not_requeued
}

@test "the notice given to the program is that of --signal, or the user's" {
  ARGOSY_STOP_NOTICE_S=60 job
  grep -qx ARGOSY_STOP_NOTICE_S=60 "$run_dir/environment"
  signal=$(sed -n 's/^#SBATCH.*--signal=B:USR1@\([0-9]*\).*/\1/p' "$source/jobs/train_16node.sh")
  notice=$(sed -n 's/^export ARGOSY_STOP_NOTICE_S=.*:-\([0-9]*\)}.*/\1/p' "$source/jobs/train_16node.sh")
  [ -n "$signal" ]
  [ "$signal" = "$notice" ]
}

@test "bad input: one sentence and code 2" {
  unset SLURM_JOB_ID
  job
  [ "$status" -eq 2 ]
  [[ $output == *'mpirun -n 2 apps/train'* ]]
  export SLURM_JOB_ID=42

  ARGOSY_SITE=nowhere job
  [ "$status" -eq 2 ]
  [[ $output == *'nowhere.sh'*'default example'* ]]

  BAD_CONFIG=1 job
  [ "$status" -eq 2 ]
  [[ $output == *'does not validate'* ]]

  rm "$root/apps/train"
  job
  [ "$status" -eq 2 ]
  [[ $output == *"no $root/apps/train"* ]]
  [ ! -e "$run_dir/calls" ]
}
