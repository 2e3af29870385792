#!/usr/bin/env bats
# jobs/train_16node.sh with stand-ins for srun, scontrol and apps/train: every row of the verdict table, signals, bad input.

# shellcheck disable=SC2154 # make_tree assigns them
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

@test "5 is requeued twice without a newer commit, not a third time, and names the nodes" {
  TOOL_SAYS='5 12' TOOL_CODE=5 job
  requeued
  [[ $output == *'node[1-16]'* ]]
  rm "$run_dir/calls"
  SLURM_RESTART_COUNT=1 TOOL_SAYS='5 12' TOOL_CODE=5 job
  requeued
  rm "$run_dir/calls"
  SLURM_RESTART_COUNT=2 TOOL_SAYS='5 12' TOOL_CODE=5 job
  [ "$status" -eq 5 ]
  not_requeued
}

@test "a newer commit starts the count of losses again" {
  echo '5 12' >"$run_dir/exit.42.0"
  echo '5 12' >"$run_dir/exit.42.1"
  SLURM_RESTART_COUNT=2 TOOL_SAYS='5 20' TOOL_CODE=5 job
  requeued
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

@test "the notice given to the program is that of --signal" {
  signal=$(sed -n 's/^#SBATCH.*--signal=B:USR1@\([0-9]*\).*/\1/p' "$source/jobs/train_16node.sh")
  notice=$(sed -n 's/^export ARGOSY_STOP_NOTICE_S=\([0-9]*\).*/\1/p' "$source/jobs/train_16node.sh")
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
