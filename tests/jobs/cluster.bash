# shellcheck shell=bash
# A real Slurm on emulated nodes, and short runs of configs/tiny.json on it.

start_cluster() { # start_cluster OPTION…: those of scripts/slurm-sandbox up; once a file, sets nothing up where a machine cannot
  export SANDBOX=${ARGOSY_SOURCE_DIR:?}/scripts/slurm-sandbox ARGOSY_SANDBOX=$BATS_FILE_TMPDIR/slurm
  cd "$BATS_FILE_TMPDIR" || return
  ln -s "${ARGOSY_BUILD_DIR:?}/apps" apps
  ln -s "$ARGOSY_SOURCE_DIR/configs" configs
  ln -s "$ARGOSY_SOURCE_DIR/jobs" jobs
  local code=0
  "$SANDBOX" up "$@" 2>refused || code=$?
  if ((code == 2)); then return 0; fi # not here: setup() skips
  if ((code)); then
    cat refused
    return 1
  fi
  "$ARGOSY_SOURCE_DIR/scripts/data/fetch_text" --offline runs/tiny/text
  apps/preprocess configs/tiny.json
}

on_cluster() { # for setup()
  cd "$BATS_FILE_TMPDIR" || return
  "$SANDBOX" status >/dev/null 2>&1 || skip "$(tail -n 1 refused)"
  eval "$("$SANDBOX" env)"
  export ARGOSY_CONFIG=configs/tiny.json
}

short=(--set schedule.warmup=5 --set validation.interval=20 --set telemetry.log_interval=1)

train() { # train NODES RUN WORD…: submits a rank on each node, a short run in runs/RUN; sets job. `with`: options of sbatch
  local nodes=$1
  name=$2
  shift 2
  job=$(sbatch --parsable --nodes="$nodes" --ntasks-per-node=1 --gpus-per-node=0 "${with[@]}" jobs/train_16node.sh \
    "${short[@]}" --set run_dir="runs/$name" "$@")
}
with=()

within() { # within SECONDS COMMAND…: whether it comes true
  local tries=$(($1 * 5))
  shift
  for (( ; tries > 0; --tries)); do
    if "$@"; then return 0; fi
    sleep 0.2
  done
  tail -n 20 train16."$job".out
  squeue
  return 1
}
ended() { # ended [JOB]: Slurm says so; no answer, or the moment between a lost node and the new start, is no end
  [[ $(squeue -h -t all -j "${1:-$job}" -o %T 2>&1) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT)$|"Invalid job id" ]]
}
pending() { [ "$(squeue -h -j "$job" -o %T)" = PENDING ]; }
log_has() { grep -q "$1" train16."$job".out 2>/dev/null; }
verdict() { cat "runs/$name/exit.$job.$1"; } # verdict RESTART: "CODE STEP"

# slurmstepd ends some seconds later than its job step, and then removes its socket by name: also that of the next start, which has
# the same name.
step_gone() { ! pgrep -f "^slurmstepd: \[$job\." >/dev/null; }
start_again() { # a job that is requeued waits two minutes: not here
  within 60 pending
  sleep 2.5 # sooner Slurm calls the job's credential revoked
  within 60 step_gone
  scontrol update JobId="$job" StartTime=now
}

weights() { # weights RUN STEP: digests of all it holds
  sed -n 's/.*"root_digest":"\([0-9a-f]*\)".*/\1/p' "runs/$1/export/$2/MANIFEST.json"
}

ended_after_restarts() { # a rank or node that Slurm loses once more costs another restart
  ended || { pending && start_again && false; }
}

same_bits() { # as those of the undisturbed run `whole`, and not without a restart
  within 100 ended_after_restarts
  log_has "resumed from runs/$name/"
  local last
  last=$(printf '%s\n' "runs/$name/exit.$job."* | sort -V | tail -n 1)
  last=$(cat "$last")
  [[ $last == "0 "* ]]
  last=$(printf %09d "${last#0 }")
  [ -n "$(weights whole "$last")" ]
  [ "$(weights "$name" "$last")" = "$(weights whole "$last")" ]
}

rank() { # rank NUMBER: its process, as seen inside
  # shellcheck disable=SC2016 # for the shell inside
  "$SANDBOX" exec bash -c '
    for process in /proc/[0-9]*; do
      words=$(tr "\0" "\n" <"$process/environ" 2>/dev/null) || continue
      if [ "$(basename "$(readlink "$process/exe")")" = train ] && grep -qx "SLURM_JOB_ID=$1" <<<"$words" && grep -qx "SLURM_PROCID=$2" <<<"$words"; then
        echo "${process#/proc/}"
      fi
    done' _ "$job" "$1"
}

mend_cluster() { # for teardown()
  if [[ -z $BATS_TEST_COMPLETED && -n ${job:-} ]]; then tail -n 40 train16."$job".out || true; fi
  scancel --full -u root 2>/dev/null || true
  local node
  for node in 1 2 3 4; do
    if [ -n "$(sinfo -h -n "node$node" -t down,drain,fail -o %D)" ]; then scontrol update NodeName="node$node" State=RESUME; fi
  done
}

stand_in() { # stand_in NAME: a tree with the job scripts and, from standard input, an apps/train whose run directory is runs/NAME/JOB
  mkdir -p "$1/apps" "$1/configs"
  ln -s "$ARGOSY_SOURCE_DIR/jobs" "$1/jobs"
  ln -s "$ARGOSY_BUILD_DIR/apps/status" "$1/apps/status"
  touch "$1/configs/mistral_7b.json"
  {
    echo '#!/bin/bash'
    echo "if [[ \$* == *--print-config*--raw* ]]; then echo \"$PWD/runs/$1/\$SLURM_JOB_ID\" && exit; fi"
    cat
  } >"$1/apps/train"
  chmod +x "$1/apps/train"
}
