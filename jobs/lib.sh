# shellcheck shell=bash disable=SC2154 # root comes from the script that sources this
# What the job scripts share: finding the tools, the site's launch line, stopping in time, the verdict on an exit code; and
# what chain.sh and status.sh know of a chain. Sourced with `root` set. The life of a job is drawn in jobs/README.md.

# Signals may come before there is anything to pass them to.
pid='' woken=0 ending=0
if [ -n "${SLURM_JOB_ID:-}" ]; then
  trap 'woken=1; [ -z "$pid" ] || kill -USR1 "$pid"' USR1
  trap 'woken=1; ending=1' TERM
fi

argosy_fail() { # argosy_fail CODE SENTENCE: ends the script; in a job the exit file says so as well
  echo "${SLURM_JOB_NAME:-job}: $2" >&2
  if [ -n "${ARGOSY_EXIT_FILE:-}" ]; then echo "$1 $(argosy_newest)" >"$ARGOSY_EXIT_FILE"; fi
  exit "$1"
}

# argosy_site: prints the site's file.
argosy_site() {
  local site=$root/jobs/sites/${ARGOSY_SITE:-default}.sh known
  if [ ! -r "$site" ]; then
    known=$(cd "$root/jobs/sites" && printf '%s ' *.sh)
    argosy_fail 2 "no site file $site: ARGOSY_SITE is one of ${known//.sh/}"
  fi
  echo "$site"
}

# argosy_run_dir CONFIG WORD…: sets `run` to the configuration's run directory. The words are apps/train's.
argosy_run_dir() {
  [ -x "$root/apps/train" ] ||
    argosy_fail 2 "no $root/apps/train: submit from a clone after its build, a build tree or an install tree, or set ARGOSY_ROOT"
  run=$("$root/apps/train" "$@" --print-config run_dir) || argosy_fail 2 "$1 does not validate (above); nothing was started"
  run=${run#\"} run=${run%\"} # a JSON string
}

# argosy_start DEFAULT WORD…: checks where we are and reads the site: sets the array `launch`; `config`, ARGOSY_CONFIG or
# configs/DEFAULT.json; `run`, its run directory, made where it is missing. The words are apps/train's.
argosy_start() {
  local site
  [ -n "${SLURM_JOB_ID:-}" ] ||
    argosy_fail 2 "this script runs under Slurm (sbatch $0); without Slurm: mpirun -n 2 apps/train CONFIG"
  site=$(argosy_site) || exit
  launch=()
  # shellcheck source=jobs/sites/default.sh
  . "$site" || argosy_fail 2 "the site file $site failed (above): a module, container or variable that this machine does not have"
  ((${#launch[@]})) || argosy_fail 2 "the site file $site leaves the array launch empty"
  command -v "${launch[0]}" >/dev/null || argosy_fail 2 "no ${launch[0]} here, which $site launches with"
  # The ranks of this allocation; every tool refuses a world of another size (such as srun without --mpi=pmi2).
  expected_ranks=${SLURM_NTASKS:-$((${SLURM_JOB_NUM_NODES:-1} * ${SLURM_NTASKS_PER_NODE:-1}))}
  config=${ARGOSY_CONFIG:-$root/configs/$1.json}
  argosy_run_dir "$config" "${@:2}"
  mkdir -p "$run" || argosy_fail 4 "cannot create the run directory $run"
  # Those of another cluster's job of this number are not ours.
  if ((${SLURM_RESTART_COUNT:-0} == 0)); then rm -f "$run/exit.$SLURM_JOB_ID."* "$run/starts.$SLURM_JOB_ID"; fi
  export ARGOSY_EXIT_FILE=$run/exit.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
}

# argosy_made FOLDER: ends a job that was started again although its result, which appears whole, is there.
argosy_made() {
  if ((${SLURM_RESTART_COUNT:-0} == 0)) || [ ! -e "$1" ]; then return; fi
  echo "$1 is there: an earlier start of this job has made it" >&2
  echo "0 0" >"$ARGOSY_EXIT_FILE"
  exit 0
}

# argosy_words WORD…: prints those that a restart takes along, a line each. What says where to begin holds until there is
# a checkpoint to go on from: else each restart would begin there again.
argosy_words() {
  local count begins
  while (($#)); do
    count=1 begins=0
    case $1 in
      --resume) count=2 begins=1 ;;
      --resume=* | --from-scratch | --abandon-newer) begins=1 ;;
    esac
    if ((!begins || ${SLURM_RESTART_COUNT:-0} == 0 || $(argosy_newest) == 0)); then printf '%s\n' "${@:1:count}"; fi
    shift $((count < $# ? count : $#))
  done
}

# argosy_tool TOOL ARGUMENT…: runs apps/TOOL to its verdict and exits with it, after asking for a requeue where that helps.
argosy_tool() {
  local tool=$1 program=$root/apps/$1
  [ -x "$program" ] || argosy_fail 2 "no $program: build it, or set ARGOSY_ROOT"
  shift
  export ARGOSY_EXPECT_RANKS=$expected_ranks
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
  argosy_deadline
  argosy_count_start "$tool"
  argosy_run "$program" "$@"
  argosy_verdict
}

# Sets ARGOSY_DEADLINE to the end of this allocation, seconds since 1970, where Slurm knows one.
argosy_deadline() {
  local end=${SLURM_JOB_END_TIME:-}
  if [ -z "$end" ]; then
    end=$(SLURM_TIME_FORMAT=standard squeue -h -j "$SLURM_JOB_ID" -o %e 2>/dev/null)
    if [ -n "$end" ]; then end=$(date -d "$end" +%s 2>/dev/null); fi # "NONE" is no date
  fi
  if [ -n "$end" ]; then export ARGOSY_DEADLINE=$end; fi
}

# The newest step that is committed in the run directory; 0: none.
argosy_newest() {
  local name newest=0
  for name in "$run"/checkpoints/* "$run"/export/*; do
    name=${name##*/}
    if [[ $name =~ ^[0-9]+$ ]] && ((10#$name > newest)); then newest=$((10#$name)); fi
  done
  echo "$newest"
}

# A training that starts again and again without a newer checkpoint ends with 70. Each start, however it came about, leaves
# the newest step of its time in starts.<job>.
readonly argosy_most_starts=3
argosy_count_start() { # argosy_count_start TOOL
  starts=$run/starts.$SLURM_JOB_ID
  [ "$1" != train ] || (($(argosy_fruitless_starts) < argosy_most_starts)) ||
    argosy_fail 70 "$argosy_most_starts starts in a row have brought no checkpoint newer than step $(argosy_newest), so it is not tried again: see how they ended above, and whether a step and a save fit between start and stop"
  argosy_newest >>"$starts" || argosy_fail 4 "cannot write $starts"
}

# The latest starts of this job that found what is the newest checkpoint now.
argosy_fruitless_starts() {
  local newest step count=0
  newest=$(argosy_newest)
  while read -r step; do
    count=$((step == newest ? count + 1 : 0))
  done < <(cat "$starts" 2>/dev/null)
  echo "$count"
}

# argosy_run PROGRAM…: launches it, passes USR1 on, waits. Sets rc, and ending=1 when Slurm itself ends the job (it then
# signals the ranks as well).
# Started in the background because bash runs no trap while a foreground child runs; a wait that a trap interrupts is
# repeated, and then gives the program's own code.
argosy_run() {
  rc=0
  "${launch[@]}" "$@" <&0 & # else bash gives it an empty standard input
  pid=$!
  if ((woken)); then sleep 2 && kill -USR1 "$pid"; fi # came early: a launcher without its handler would die of it
  while :; do
    woken=0
    wait "$pid"
    rc=$?
    ((woken)) || break
  done
  # Launchers lose codes (the highest wins, killed ranks count): the program's own word is believed first.
  if [ -s "$ARGOSY_EXIT_FILE" ]; then read -r rc _ <"$ARGOSY_EXIT_FILE"; fi
}

# Exits with rc; calls argosy_done first, where a script has one and all went well. 75 (stopped, saved) and 5 (rank or
# device lost) are requeued, unless Slurm is ending the job or starts bear no fruit.
argosy_verdict() {
  local count
  if ((rc == 0)) && declare -F argosy_done >/dev/null; then argosy_done || exit 4; fi
  if ((ending)); then exit "$rc"; fi # cancelled, preempted or requeued already: reviving it would be wrong
  if ((rc != 75 && rc != 5)); then exit "$rc"; fi
  count=$(argosy_fruitless_starts)
  if ((rc == 5)); then
    echo "${SLURM_JOB_NAME:-job}: lost a rank or a device on ${SLURM_JOB_NODELIST:-these nodes} ($count in a row without a newer checkpoint)" >&2
  fi
  if ((count < argosy_most_starts)); then
    argosy_requeue
  elif ((rc == 75)); then
    argosy_fail 70 "stopped $count times in a row at step $(argosy_newest): no step fits between start and stop; ask for a longer --time"
  fi
  exit "$rc"
}

# After a requeue Slurm ends this script with TERM; leaving before would complete the job instead.
# A slurmctld that is away for a while is asked again.
argosy_requeue() {
  local tries said
  for ((tries = 0; tries < 12; ++tries)); do
    if said=$(scontrol requeue "$SLURM_JOB_ID" 2>&1); then break; fi
    echo "$said" >&2
    if ((ending)) || [[ $said != *'contact slurm'* && $said != *'timed out'* ]]; then return; fi
    sleep "${ARGOSY_REQUEUE_WAIT_S:-10}" &
    wait $!
  done
  ((tries < 12)) || return
  sleep "${ARGOSY_REQUEUE_WAIT_S:-60}" &
  wait $!
}

# ---- chains: <run directory>/chain.json names the job of each stage, a line each.

argosy_stages=(count preprocess train soup export)
declare -A job=() state=()

# argosy_read_chain RUN: sets job and state of each stage. The state: new, done, "queued …" with Slurm's word and reason,
# "failed CODE", or cancelled (it left the queue without a word, such as for a stage before it).
argosy_read_chain() {
  local stage line code
  for stage in "${argosy_stages[@]}"; do
    job[$stage]=$(sed -n "s/^{\"stage\":\"$stage\",\"job\":\"\([0-9]*\)\".*/\1/p" "$1/chain.json" 2>/dev/null)
    state[$stage]=new
    [ -n "${job[$stage]}" ] || continue
    code=''
    line=$(printf '%s\n' "$1/exit.${job[$stage]}."* | sort -V | tail -n 1) # of the last restart
    if [ -r "$line" ]; then read -r code _ <"$line"; fi
    if ! line=$(squeue -h -j "${job[$stage]}" -o '%T %r' 2>&1); then
      # Taking a job for gone because nobody answers would submit it twice.
      [[ $line == *'Invalid job id'* ]] || argosy_fail 2 "Slurm does not say what became of job ${job[$stage]}: $line"
      line=''
    fi
    if [ "$code" = 0 ] && [[ ! $line =~ ^(PENDING|RUNNING) ]]; then
      state[$stage]='done'
    elif [ -n "$line" ]; then
      state[$stage]="queued ${line,,}"
      state[$stage]=${state[$stage]% none}
    elif [ -n "$code" ] && ((code != 75)); then
      state[$stage]="failed $code"
    else
      state[$stage]=cancelled
    fi
  done
}

argosy_print_chain() {
  local stage
  printf '%-11s %-8s %s\n' stage job state
  for stage in "${argosy_stages[@]}"; do printf '%-11s %-8s %s\n' "$stage" "${job[$stage]:--}" "${state[$stage]}"; done
}

argosy_chain_json() { # {"count":{"job":"1","state":"done"},…}
  local stage text=''
  for stage in "${argosy_stages[@]}"; do text+=",\"$stage\":{\"job\":\"${job[$stage]}\",\"state\":\"${state[$stage]}\"}"; done
  echo "{${text:1}}"
}

# argosy_json_value KEY: of the one-line object on standard input.
argosy_json_value() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p"; }
