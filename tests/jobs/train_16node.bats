#!/usr/bin/env bats
# jobs/train_16node.sh with stand-ins for srun, scontrol and apps/train: every row of the verdict table, signals, bad input.

setup() {
  source=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
  root=$BATS_TEST_TMPDIR/tree
  bin=$BATS_TEST_TMPDIR/bin
  run_dir=$root/runs/demo
  mkdir -p "$root/apps" "$root/configs" "$bin" "$run_dir"
  cp -r "$source/jobs" "$root/"
  touch "$root/configs/mistral_7b.json"
  # apps/train answers --print-config; run for real it writes $TRAIN_SAYS into the exit file and ends with $TRAIN_CODE.
  program "$root/apps/train" <<'TRAIN'
case $* in
  *--print-config*) [ -z "${BAD_CONFIG:-}" ] && echo "\"$RUN_DIR\"" ;;
  *)
    env >"$RUN_DIR/environment"
    if [ -n "${WAIT_FOR_USR1:-}" ]; then
      trap 'woken=1' USR1
      touch "$RUN_DIR/ready"
      while [ -z "${woken:-}" ]; do sleep 0.05; done
    fi
    if [ -n "${TRAIN_SAYS:-}" ]; then echo "$TRAIN_SAYS" >"$ARGOSY_EXIT_FILE"; fi
    exit "${TRAIN_CODE:-0}"
    ;;
esac
TRAIN
  program "$bin/srun" <<'SRUN'
echo "srun $*" >>"$RUN_DIR/calls"
while [[ $1 == --* ]]; do shift; done
shift 2 # env --block-signal=USR1: a blocked signal would not reach the shell below
exec "$@"
SRUN
  program "$bin/scontrol" <<'SCONTROL'
echo "scontrol $*" >>"$RUN_DIR/calls"
exit "${SCONTROL_CODE:-0}"
SCONTROL
  export PATH=$bin:$PATH RUN_DIR=$run_dir ARGOSY_REQUEUE_WAIT_S=0
  export SLURM_JOB_ID=42 SLURM_JOB_NAME=train16 SLURM_SUBMIT_DIR=$root SLURM_JOB_NUM_NODES=16 SLURM_NTASKS_PER_NODE=8
  export SLURM_JOB_NODELIST='node[1-16]'
}

program() { # program PATH: an executable from standard input
  { echo '#!/bin/bash' && cat; } >"$1"
  chmod +x "$1"
}

# Slurm runs a spooled copy, from the folder of the submission.
job() {
  cp "$root/jobs/train_16node.sh" "$BATS_TEST_TMPDIR/slurm_script"
  cd "$root" || return
  run bash "$BATS_TEST_TMPDIR/slurm_script"
}

not_requeued() { if requeued; then return 1; fi; }
requeued() { grep -q '^scontrol requeue 42$' "$run_dir/calls"; }

@test "a finished run ends with 0 and is not requeued" {
  TRAIN_SAYS='0 100' job
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

@test "75 is requeued" {
  TRAIN_SAYS='75 12' TRAIN_CODE=75 job
  [ "$status" -eq 75 ]
  requeued
}

@test "75 stays 75 when Slurm refuses to requeue" {
  TRAIN_SAYS='75 12' SCONTROL_CODE=1 job
  [ "$status" -eq 75 ]
}

@test "the exit file is believed before the launcher" {
  TRAIN_SAYS='75 12' TRAIN_CODE=143 job
  [ "$status" -eq 75 ]
  requeued
}

@test "without an exit file the launcher's code counts" {
  TRAIN_CODE=139 job
  [ "$status" -eq 139 ]
  not_requeued
}

@test "2, 3, 4, 6 and 70 are never requeued" {
  for code in 2 3 4 6 70; do
    TRAIN_SAYS="$code 12" TRAIN_CODE=$code job
    [ "$status" -eq "$code" ]
    not_requeued
  done
}

@test "5 is requeued twice without a newer commit, not a third time, and names the nodes" {
  TRAIN_SAYS='5 12' TRAIN_CODE=5 job
  requeued
  [[ $output == *'node[1-16]'* ]]
  rm "$run_dir/calls"
  SLURM_RESTART_COUNT=1 TRAIN_SAYS='5 12' TRAIN_CODE=5 job
  requeued
  rm "$run_dir/calls"
  SLURM_RESTART_COUNT=2 TRAIN_SAYS='5 12' TRAIN_CODE=5 job
  [ "$status" -eq 5 ]
  not_requeued
}

@test "a newer commit starts the count of losses again" {
  echo '5 12' >"$run_dir/exit.42.0"
  echo '5 12' >"$run_dir/exit.42.1"
  SLURM_RESTART_COUNT=2 TRAIN_SAYS='5 20' TRAIN_CODE=5 job
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
  WAIT_FOR_USR1=1 TRAIN_SAYS='75 7' TRAIN_CODE=75 bash jobs/train_16node.sh &
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
  WAIT_FOR_USR1=1 TRAIN_SAYS='75 7' TRAIN_CODE=75 bash jobs/train_16node.sh &
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
