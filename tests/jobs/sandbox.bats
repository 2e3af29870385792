#!/usr/bin/env bats
# Job scripts under a real Slurm (scripts/slurm-sandbox): sixteen emulated nodes, a rank on each.

bats_require_minimum_version 1.5.0

setup_file() {
  export SANDBOX=${ARGOSY_SOURCE_DIR:?}/scripts/slurm-sandbox ARGOSY_SANDBOX=$BATS_FILE_TMPDIR/slurm
  cd "$BATS_FILE_TMPDIR" || return
  ln -s "${ARGOSY_BUILD_DIR:?}/apps" apps
  ln -s "$ARGOSY_SOURCE_DIR/configs" configs
  ln -s "$ARGOSY_SOURCE_DIR/jobs" jobs
  if ! "$SANDBOX" up --nodes 16 --gpus 8 2>refused; then return 0; fi
  "$ARGOSY_SOURCE_DIR/scripts/data/fetch_text" --offline runs/tiny/text
  apps/preprocess configs/tiny.json
}

teardown_file() { "$SANDBOX" down; }

setup() {
  cd "$BATS_FILE_TMPDIR" || return
  "$SANDBOX" status >/dev/null 2>&1 || skip "$(tail -n 1 refused)"
  eval "$("$SANDBOX" env)"
  export ARGOSY_CONFIG=configs/tiny.json
}

short=(--set schedule.warmup=5 --set validation.interval=20 --set telemetry.log_interval=1)

train() { # train NODES RUN WORD…: submits a rank on each node, a short run in runs/RUN; sets job
  local nodes=$1 run=$2
  shift 2
  job=$(sbatch --parsable --nodes="$nodes" --ntasks-per-node=1 --gpus-per-node=0 jobs/train_16node.sh \
    "${short[@]}" --set run_dir="runs/$run" "$@")
}

within() { # within SECONDS COMMAND…: whether it comes true
  local tries=$(($1 * 5))
  shift
  for (( ; tries > 0; --tries)); do
    if "$@"; then return 0; fi
    sleep 0.2
  done
  cat train16."$job".out
  squeue
  return 1
}
ended() { [ -z "$(squeue -h -j "$job" -o %T 2>/dev/null)" ]; }
pending() { [ "$(squeue -h -j "$job" -o %T)" = PENDING ]; }
log_has() { grep -q "$1" train16."$job".out 2>/dev/null; }

weights() { # weights RUN STEP: digests of all it holds
  sed -n 's/.*"root_digest":"\([0-9a-f]*\)".*/\1/p' "runs/$1/export/$2/MANIFEST.json"
}

@test "sixteen nodes train to the end, and four nodes go on from there" {
  train 16 sixteen --set schedule.length=20
  within 100 ended
  [ "$(cat runs/sixteen/exit."$job".0)" = "0 20" ]
  log_has "16 ranks on 16 nodes"
  train 4 sixteen --set schedule.length=25
  within 60 ended
  [ "$(cat runs/sixteen/exit."$job".0)" = "0 25" ]
  log_has "resumed from runs/sixteen/export/000000020"
}

@test "a job that is told to stop saves, is requeued under its id, and reaches the bits of an undisturbed run" {
  train 2 whole --set schedule.length=40
  within 60 ended
  train 2 parts --set schedule.length=40
  within 60 log_has "step 3 "
  scancel --batch --signal=USR1 "$job" # what --signal does before the limit
  within 30 pending
  read -r code stopped <runs/parts/exit."$job".0
  [ "$code" = 75 ]
  [ "$stopped" -gt 3 ] && [ "$stopped" -lt 40 ]
  sleep 2.5 # sooner Slurm calls the job's credential revoked
  scontrol update JobId="$job" StartTime=now
  within 60 ended
  [ "$(cat runs/parts/exit."$job".1)" = "0 40" ]
  log_has "resumed from runs/parts/checkpoints/$(printf %09d "$stopped")"
  [ -n "$(weights whole 000000040)" ]
  [ "$(weights parts 000000040)" = "$(weights whole 000000040)" ]
}

@test "as typed it is accepted on sixteen nodes of eight GPUs, and not on fewer" {
  job=$(unset ARGOSY_CONFIG && sbatch --parsable --hold jobs/train_16node.sh)
  [ "$(squeue -h -j "$job" -o '%D %C %b')" = "16 128 gres:gpu:8" ]
  scancel "$job"
  run -1 sbatch --nodes=17 jobs/train_16node.sh
}
