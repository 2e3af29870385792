# shellcheck shell=bash disable=SC2154 # root comes from the script that sources this
# What the job scripts share: finding the tools, the site's launch line, stopping in time, the verdict on an exit code.
# Sourced with `root` set. The life of a job is drawn in jobs/README.md.

argosy_fail() { # argosy_fail CODE SENTENCE
  echo "${SLURM_JOB_NAME:-job}: $2" >&2
  exit "$1"
}

# argosy_start DEFAULT WORD…: checks where we are and reads the site: sets the array `launch`; `config`, ARGOSY_CONFIG or
# configs/DEFAULT.json; `run`, its run directory, made where it is missing. The words are apps/train's.
argosy_start() {
  local site=$root/jobs/sites/${ARGOSY_SITE:-default}.sh known
  [ -n "${SLURM_JOB_ID:-}" ] ||
    argosy_fail 2 "this script runs under Slurm (sbatch $0); without Slurm: mpirun -n 2 apps/train CONFIG"
  if [ ! -r "$site" ]; then
    known=$(cd "$root/jobs/sites" && printf '%s ' *.sh)
    argosy_fail 2 "no site file $site: ARGOSY_SITE is one of ${known//.sh/}"
  fi
  launch=()
  # shellcheck source=jobs/sites/default.sh
  . "$site" || argosy_fail 2 "the site file $site failed"
  ((${#launch[@]})) || argosy_fail 2 "the site file $site leaves the array launch empty"
  # The ranks of this allocation; every tool refuses a world of another size (such as srun without --mpi=pmi2).
  expected_ranks=${SLURM_NTASKS:-$((${SLURM_JOB_NUM_NODES:-1} * ${SLURM_NTASKS_PER_NODE:-1}))}
  config=${ARGOSY_CONFIG:-$root/configs/$1.json}
  shift
  [ -x "$root/apps/train" ] ||
    argosy_fail 2 "no $root/apps/train: submit from a clone after its build, a build tree or an install tree, or set ARGOSY_ROOT"
  run=$("$root/apps/train" "$config" "$@" --print-config run_dir) || argosy_fail 2 "$config does not validate (above); nothing was started"
  run=${run#\"} run=${run%\"} # a JSON string
  mkdir -p "$run" || argosy_fail 4 "cannot create the run directory $run"
}

# argosy_tool TOOL ARGUMENT…: runs apps/TOOL to its verdict and exits with it, after asking for a requeue where that helps.
argosy_tool() {
  local program=$root/apps/$1
  [ -x "$program" ] || argosy_fail 2 "no $program: build it, or set ARGOSY_ROOT"
  shift
  export ARGOSY_EXPECT_RANKS=$expected_ranks
  export ARGOSY_EXIT_FILE=$run/exit.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
  argosy_run "$program" "$@"
  argosy_verdict
}

# argosy_run PROGRAM…: launches it, passes USR1 on, waits. Sets rc, and ending=1 when Slurm itself ends the job (it then
# signals the ranks as well).
# Started in the background because bash runs no trap while a foreground child runs; a wait that a trap interrupts is
# repeated, and then gives the program's own code.
argosy_run() {
  local woken=0
  pid='' ending=0 rc=0
  trap 'woken=1; [ -z "$pid" ] || kill -USR1 "$pid"' USR1
  trap 'woken=1; ending=1' TERM
  "${launch[@]}" "$@" <&0 & # else bash gives it an empty standard input
  pid=$!
  while :; do
    woken=0
    wait "$pid"
    rc=$?
    ((woken)) || break
  done
  # Launchers lose codes (the highest wins, killed ranks count): the program's own word is believed first.
  if [ -s "$ARGOSY_EXIT_FILE" ]; then read -r rc _ <"$ARGOSY_EXIT_FILE"; fi
}

# Restarts of this job, this one included, that ended with code 5 one after the other without a newer commit.
argosy_losses_in_a_row() {
  local restart=${SLURM_RESTART_COUNT:-0} code step first='' count=0
  while ((restart >= 0)) && read -r code step 2>/dev/null <"${ARGOSY_EXIT_FILE%.*}.$restart"; do
    if [ "$code" != 5 ] || [ "${first:=$step}" != "$step" ]; then break; fi
    count=$((count + 1)) restart=$((restart - 1))
  done
  echo "$count"
}

# Exits with rc; calls argosy_done first, where a script has one and all went well. 75 (stopped, saved) is requeued unless Slurm is ending the job; 5 (lost rank or device) at most twice.
argosy_verdict() {
  local losses
  if ((rc == 0)) && declare -F argosy_done >/dev/null; then argosy_done || exit 4; fi
  if ((ending)); then exit "$rc"; fi # cancelled, preempted or requeued already: reviving it would be wrong
  case $rc in
    75) argosy_requeue ;;
    5)
      losses=$(argosy_losses_in_a_row)
      echo "${SLURM_JOB_NAME:-job}: lost a rank or a device on ${SLURM_JOB_NODELIST:-these nodes} ($losses in a row at one step)" >&2
      if ((losses <= 2)); then argosy_requeue; fi
      ;;
  esac
  exit "$rc"
}

# After a requeue Slurm ends this script with TERM; leaving before would complete the job instead.
argosy_requeue() {
  scontrol requeue "$SLURM_JOB_ID" || return
  sleep "${ARGOSY_REQUEUE_WAIT_S:-60}" &
  wait $!
}
