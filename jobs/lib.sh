# shellcheck shell=bash disable=SC2154 # root comes from the script that sources this
# What the job scripts share: finding the tools, the site's launch line, stopping in time, the verdict on an exit code; and
# what chain.sh and status.sh know of a chain. Sourced with `root` set. The life of a job is drawn in jobs/README.md.
# Files of a run directory are read by apps/status alone. What it and Slurm say is a number here when it is made of digits:
# bash would run commands that stand in anything else.

# Signals may come before there is anything to pass them to.
pid='' woken=0 ending=0
if [ -n "${SLURM_JOB_ID:-}" ]; then
  trap 'woken=1; [ -z "$pid" ] || kill -USR1 "$pid"' USR1
  trap 'woken=1; ending=1' TERM
fi
# Of a job that has submitted this one.
unset ARGOSY_EXIT_FILE ARGOSY_EXPECT_RANKS ARGOSY_DEADLINE ARGOSY_REQUEST
newest=0 fruitless=0 first='' code='' why=''

argosy_fail() { # argosy_fail CODE SENTENCE: ends the script; in a job the exit file says so as well
  echo "${SLURM_JOB_NAME:-job}: $2" >&2
  if [ -n "${ARGOSY_EXIT_FILE:-}" ]; then { rm -f "$ARGOSY_EXIT_FILE" && echo "$1 $newest" >"$ARGOSY_EXIT_FILE"; } 2>/dev/null; fi
  exit "$1"
}

# argosy_own FILE: refuses what is there as FILE and is no file of ours: a link would be followed, a pipe waited for.
argosy_own() {
  if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then argosy_fail 4 "$1 is no regular file: remove it"; fi
}

# Variables may be words in front of a script's others, NAME=VALUE: so they reach a job also where the site has sbatch export
# none. Taken away from the words of the script that sources this.
argosy_variables=(ARGOSY_CONFIG ARGOSY_MODEL ARGOSY_INPUT ARGOSY_OUTPUT ARGOSY_SITE ARGOSY_ROOT ARGOSY_STOP_NOTICE_S OMP_NUM_THREADS)
while [[ ${1:-} =~ ^(ARGOSY_[A-Z_]*|OMP_NUM_THREADS)= ]]; do
  [[ " ${argosy_variables[*]} " == *" ${1%%=*} "* ]] || argosy_fail 2 "there is no variable ${1%%=*}: wanted one of ${argosy_variables[*]}"
  declare -x "$1"
  shift
done
[ "${ARGOSY_ROOT:-$root}" = "$root" ] || argosy_fail 2 "ARGOSY_ROOT=$ARGOSY_ROOT has to be the first word behind the script"

# argosy_number TO NAME DEFAULT: sets TO to the whole number in the variable NAME.
argosy_number() {
  local given=${!2:-$3}
  [[ $given =~ ^[0-9]{1,9}$ ]] || argosy_fail 2 "wanted a whole number in $2, got $given"
  printf -v "$1" %d "$((10#$given))"
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
  local tool
  for tool in train status; do
    [ -x "$root/apps/$tool" ] ||
      argosy_fail 2 "no $root/apps/$tool: submit from a clone after its build, a build tree or an install tree, or set ARGOSY_ROOT"
  done
  run=$("$root/apps/train" "$@" --print-config run_dir --raw && echo .) || argosy_fail 2 "$1 does not validate (above); nothing was started"
  run=${run%$'\n.'} # a name may end with a line end, which $(…) would take away
  if [[ $run == -* ]]; then run=./$run; fi
}

# argosy_start DEFAULT WORD…: checks where we are and reads the site: sets the array `launch`; `config`, ARGOSY_CONFIG or
# the file DEFAULT.json of configs/; `run`, its run directory, made where it is missing; `restart`. The words are apps/train's.
argosy_start() {
  local site nodes ranks
  [[ ${SLURM_JOB_ID:-} =~ ^[0-9]{1,18}$ ]] ||
    argosy_fail 2 "this script runs under Slurm (sbatch $0); without Slurm: mpiexec -n 2 apps/train CONFIG"
  if [ "${SLURM_EXPORT_ENV:-}" = NONE ] && [ -z "${ARGOSY_CONFIG:-}" ]; then
    argosy_fail 2 "sbatch exports no variables here (SBATCH_EXPORT=NONE, --export=NONE), and no configuration is named as a word: sbatch SCRIPT ARGOSY_CONFIG=$root/configs/$1.json"
  fi
  export SLURM_EXPORT_ENV=ALL PATH # to the ranks: srun would hold to what sbatch was told
  # srun does not take it over from the job since Slurm 22.05.
  if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
  site=$(argosy_site) || exit
  launch=()
  # shellcheck source=jobs/sites/default.sh
  . "$site" || argosy_fail 2 "the site file $site failed (above): a module, container or variable that this machine does not have"
  ((${#launch[@]})) || argosy_fail 2 "the site file $site leaves the array launch empty"
  command -v "${launch[0]}" >/dev/null || argosy_fail 2 "no ${launch[0]} here, which $site launches with"
  # The ranks of this allocation; every tool refuses a world of another size (such as srun without --mpi=pmi2).
  argosy_number nodes SLURM_JOB_NUM_NODES 1
  argosy_number ranks SLURM_NTASKS_PER_NODE 1
  argosy_number expected_ranks SLURM_NTASKS $((nodes * ranks))
  argosy_number restart SLURM_RESTART_COUNT 0
  config=${ARGOSY_CONFIG:-$root/configs/$1.json}
  if [[ $config == -* ]]; then config=./$config; fi
  argosy_run_dir "$config" "${@:2}"
  mkdir -p "$run" || argosy_fail 4 "cannot create the run directory $run"
  # Each start leaves a line in starts.<job>. Without one this is the first, and a count is of the job that submitted this one.
  if [ ! -e "$run/starts.$SLURM_JOB_ID" ]; then restart=0; fi
  export SLURM_RESTART_COUNT=$restart # leases tell starts apart by it
  # Those of another cluster's job of this number are not ours.
  if ((restart == 0)); then rm -f "$run/exit.$SLURM_JOB_ID."* "$run/starts.$SLURM_JOB_ID"; fi
  export ARGOSY_EXIT_FILE=$run/exit.$SLURM_JOB_ID.$restart
}

# argosy_made FOLDER: ends a job whose result, which appears whole, is there. At a job's first start it was not, or that start
# ended here without a line in starts.<job>: so an earlier start has made it.
argosy_made() {
  if [ ! -e "$1" ]; then return; fi
  ((restart)) || argosy_fail 2 "$1 is there, and is never overwritten: rename or remove it to have it made again"
  echo "$1 is there: an earlier start of this job has made it" >&2
  rm -f "$ARGOSY_EXIT_FILE" && echo "0 $newest" >"$ARGOSY_EXIT_FILE"
  exit 0
}

# argosy_checkpoints: sets the array `checkpoints` to those that are committed, one a step, oldest first: the last step of a
# finished run lies in export alone.
argosy_checkpoints() {
  local said i
  checkpoints=()
  said=$("$root/apps/status" "$run" --print checkpoints) || argosy_fail 4 "apps/status cannot read the run directory $run (above)"
  if [ -n "$said" ]; then mapfile -t checkpoints <<<"$said"; fi
  for i in "${!checkpoints[@]}"; do checkpoints[i]=$run/${checkpoints[i]}; done
  ((${#checkpoints[@]} > 1)) || argosy_fail 3 "wanted two checkpoints or more in $run, got ${#checkpoints[@]}"
}

# argosy_tool TOOL ARGUMENT…: runs apps/TOOL to its verdict and exits with it, after asking for a requeue where that helps.
argosy_tool() {
  local tool=$1 program=$root/apps/$1
  [ -x "$program" ] || argosy_fail 2 "no $program: build it, or set ARGOSY_ROOT"
  shift
  export ARGOSY_EXPECT_RANKS=$expected_ranks
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # waiting threads leave their cores to others
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
  if [[ $end =~ ^[0-9]{1,18}$ ]]; then export ARGOSY_DEADLINE=$end; fi
}

# argosy_ask: sets what the run directory says of this job now: newest, the newest committed step, 0: none; fruitless, how many
# of the latest starts found that one; first, when it first started; code and why, of this start's exit file. False: it cannot
# be read.
argosy_ask() {
  local said key value
  newest=0 fruitless=0 first='' code='' why=''
  said=$("$root/apps/status" "$run" --print job --job "$SLURM_JOB_ID" --restart "$restart") || return
  while read -r key value; do
    if [[ $key =~ ^(newest|fruitless|first|code|why)$ && $value =~ ^([0-9]{1,18}|[a-z_]+)$ ]]; then printf -v "$key" %s "$value"; fi
  done <<<"$said"
  [[ $newest$fruitless =~ ^[0-9]+$ && $first$code =~ ^[0-9]*$ ]]
}

# A training that starts again and again without a newer checkpoint ends with 70. Each start, however it came about, leaves
# the newest step of its time in starts.<job>, and its second. A job's first one names what its words ask for: by
# ARGOSY_REQUEST the trainer knows what it has done already (--from-scratch, --resume).
readonly argosy_most_starts=3
argosy_count_start() { # argosy_count_start TOOL
  local now
  now=$(date +%s)
  argosy_ask || argosy_fail 4 "apps/status cannot read the run directory $run (above)"
  [ "$1" != train ] || ((fruitless < argosy_most_starts)) ||
    argosy_fail 70 "$argosy_most_starts starts in a row have brought no checkpoint newer than step $newest, so it is not tried again: see how they ended above, and whether a step and a save fit between start and stop"
  argosy_own "$run/starts.$SLURM_JOB_ID"
  echo "$newest $now" >>"$run/starts.$SLURM_JOB_ID" || argosy_fail 4 "cannot write $run/starts.$SLURM_JOB_ID"
  export ARGOSY_REQUEST=slurm.$SLURM_JOB_ID.${first:-$now}
}

# argosy_run PROGRAM…: launches it, passes USR1 on, waits. Sets rc, what argosy_ask sets, and ending=1 when Slurm itself ends the
# job (it then signals the ranks as well).
# Started in the background because bash runs no trap while a foreground child runs; a wait that a trap interrupts is
# repeated, and then gives the program's own code.
argosy_run() {
  rc=0
  rm -f "$ARGOSY_EXIT_FILE"
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
  if argosy_ask && [ -n "$code" ]; then rc=$code; fi
}

# Exits with rc. 75 (stopped, saved) and 5 (rank or device lost) are requeued, unless Slurm is ending the job, a user asked for the stop, or starts bear no fruit.
argosy_verdict() {
  if ((ending)); then exit "$rc"; fi # cancelled, preempted or requeued already: reviving it would be wrong
  if ((rc != 75 && rc != 5)); then exit "$rc"; fi
  if [ "$why" = stop_file ]; then
    echo "${SLURM_JOB_NAME:-job}: saved step $newest and ended, since the file of stop.file is there; it is not requeued: remove the file and submit again to go on" >&2
    exit "$rc"
  fi
  if ((rc == 5)); then
    echo "${SLURM_JOB_NAME:-job}: lost a rank or a device on ${SLURM_JOB_NODELIST:-these nodes} ($fruitless in a row without a newer checkpoint)" >&2
  fi
  if ((fruitless < argosy_most_starts)); then
    argosy_requeue
  elif ((rc == 75)); then
    argosy_fail 70 "stopped $fruitless times in a row at step $newest: no step fits between start and stop; ask for a longer --time"
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

# ---- chains: <run directory>/chain.json names the job of each stage.

argosy_stages=(count preprocess train soup export)
declare -A job=() state=()
queue=() # what Slurm says of them, as words for apps/status

# argosy_read_stages RUN WORD…: sets job and state of each stage to what apps/status says with these words.
argosy_read_stages() {
  local said stage number text
  for stage in "${argosy_stages[@]}"; do job[$stage]='' state[$stage]=new; done
  [ -d "$1" ] || return 0 # nothing has been submitted
  said=$("$root/apps/status" "$1" --print stages "${@:2}") || argosy_fail 4 "apps/status cannot read $1 (above)"
  while read -r stage number text; do
    if [[ $stage =~ ^(count|preprocess|train|soup|export)$ && $number =~ ^[0-9]{1,18}$ ]]; then job[$stage]=$number state[$stage]=$text; fi
  done <<<"$said"
}

# argosy_read_chain RUN: the same, after asking Slurm; sets queue. The states are explained in lib/telemetry/FORMAT.md.
argosy_read_chain() {
  local stage line
  argosy_read_stages "$1"
  queue=()
  for stage in "${argosy_stages[@]}"; do
    [ -n "${job[$stage]}" ] || continue
    if ! line=$(squeue -h -j "${job[$stage]}" -o '%T %r' 2>&1); then
      # Taking a job for gone because nobody answers would submit it twice.
      [[ $line == *'Invalid job id'* ]] || argosy_fail 2 "Slurm does not say what became of job ${job[$stage]}: $line"
      line=''
    fi
    queue+=(--queue "${job[$stage]}=${line%%$'\n'*}")
  done
  if ((${#queue[@]})); then argosy_read_stages "$1" "${queue[@]}"; fi
}

argosy_print_chain() {
  local stage
  printf '%-11s %-8s %s\n' stage job state
  for stage in "${argosy_stages[@]}"; do printf '%-11s %-8s %s\n' "$stage" "${job[$stage]:--}" "${state[$stage]}"; done
}

argosy_chain_json() { # {"count":{"job":"1","state":"done"},…}
  local stage text=''
  for stage in "${argosy_stages[@]}"; do text+=",\"$stage\":{\"job\":\"${job[$stage]}\",\"state\":$(argosy_json_string "${state[$stage]}")}"; done
  echo "{${text:1}}"
}

argosy_json_string() { # argosy_json_string TEXT: in quotes, with escapes; bytes that are no UTF-8 are left out
  local LC_ALL=C text at character
  text=$(printf %s. "$1" | iconv -c -f UTF-8 -t UTF-8)
  text=${text%.}
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  for ((at = 1; at < 32; ++at)); do
    printf -v character %b "\\x$(printf %02x "$at")"
    if [[ $text == *"$character"* ]]; then text=${text//"$character"/"$(printf '\\u%04x' "$at")"}; fi
  done
  printf '"%s"' "$text"
}
