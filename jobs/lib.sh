# shellcheck shell=bash disable=SC2154 # root comes from the script that sources this
# Shared by the job scripts: finds the tools, reads the site's launch line, stops in time, decides on an exit code; and reads the
# state of a chain for chain.sh and status.sh. Sourced with `root` set. jobs/README.md shows the life of a job.
# Only apps/status reads files of a run directory. Values from it and from Slurm are used as numbers only if they consist of
# digits: in arithmetic, bash would run commands inside any other text.

# A signal may arrive before there is a process to pass it to.
pid='' woken=0 ending=0
if [ -n "${SLURM_JOB_ID:-}" ]; then
  trap 'woken=1; [ -z "$pid" ] || kill -USR1 "$pid"' USR1
  trap 'woken=1; ending=1' TERM
fi
# They would come from a job that has submitted this one.
unset ARGOSY_EXIT_FILE ARGOSY_EXPECT_RANKS ARGOSY_EXPECT_NODES ARGOSY_DEADLINE ARGOSY_REQUEST
newest=0 fruitless=0 first='' code='' why=''

argosy_fail() { # argosy_fail CODE SENTENCE: ends the script; in a job, writes the exit file
  echo "${SLURM_JOB_NAME:-job}: $2" >&2
  if [ -n "${ARGOSY_EXIT_FILE:-}" ]; then { rm -f "$ARGOSY_EXIT_FILE" && echo "$1 $newest" >"$ARGOSY_EXIT_FILE"; } 2>/dev/null; fi
  exit "$1"
}

# argosy_own FILE: fails if FILE exists and is not a regular file: a link would be followed, and a pipe would block.
argosy_own() {
  if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then argosy_fail 4 "$1 is not a regular file; remove it"; fi
}

# Arguments NAME=VALUE that come first set variables, because a site may keep sbatch from exporting any. They are removed from the
# arguments of the script that sources this file.
argosy_variables=(ARGOSY_CONFIG ARGOSY_MODEL ARGOSY_INPUT ARGOSY_OUTPUT ARGOSY_SITE ARGOSY_ROOT ARGOSY_STOP_NOTICE_S OMP_NUM_THREADS)
while [[ ${1:-} =~ ^(ARGOSY_[A-Z_]*|OMP_NUM_THREADS)= ]]; do
  [[ " ${argosy_variables[*]} " == *" ${1%%=*} "* ]] || argosy_fail 2 "unknown variable ${1%%=*}; the variables are ${argosy_variables[*]}"
  declare -x "$1"
  shift
done
[ "${ARGOSY_ROOT:-$root}" = "$root" ] || argosy_fail 2 "ARGOSY_ROOT=$ARGOSY_ROOT must be the first argument after the script"

# argosy_number TO NAME DEFAULT: sets TO to the whole number in the variable NAME.
argosy_number() {
  local given=${!2:-$3}
  [[ $given =~ ^[0-9]{1,9}$ ]] || argosy_fail 2 "$2 must be a whole number, got $given"
  printf -v "$1" %d "$((10#$given))"
}

# argosy_site: prints the path of the site file.
argosy_site() {
  local site=$root/jobs/sites/${ARGOSY_SITE:-default}.sh known
  if [ ! -r "$site" ]; then
    known=$(cd "$root/jobs/sites" && printf '%s ' *.sh)
    argosy_fail 2 "the site file $site does not exist; ARGOSY_SITE must be one of: ${known//.sh/}"
  fi
  echo "$site"
}

# argosy_run_dir CONFIG ARGUMENT…: sets `run` to the run directory of the configuration. The arguments are those of apps/train.
argosy_run_dir() {
  local tool
  for tool in train status; do
    [ -x "$root/apps/$tool" ] ||
      argosy_fail 2 "$root/apps/$tool does not exist; submit from a built clone, a build tree or an install tree, or set ARGOSY_ROOT"
  done
  run=$("$root/apps/train" "$@" --print-config run_dir --raw && echo .) || argosy_fail 2 "the configuration $1 is not valid (the error is above); nothing was started"
  run=${run%$'\n.'} # $(…) would remove a newline at the end of the name
  if [[ $run == -* ]]; then run=./$run; fi
}

# argosy_start DEFAULT ARGUMENT…: checks that this is a job and reads the site file. Sets the array `launch`; `config`, which is
# ARGOSY_CONFIG or the file DEFAULT.json of configs/; `run`, its run directory, which is created if missing; and `restart`. The arguments are those
# of apps/train.
argosy_start() {
  local site ranks
  [[ ${SLURM_JOB_ID:-} =~ ^[0-9]{1,18}$ ]] ||
    argosy_fail 2 "this script must be submitted to Slurm: sbatch $0; without Slurm, run its tool with mpiexec (README.md, The chain)"
  if [ "${SLURM_EXPORT_ENV:-}" = NONE ] && [ -z "${ARGOSY_CONFIG:-}" ]; then
    argosy_fail 2 "sbatch exports no variables here (SBATCH_EXPORT=NONE or --export=NONE), so the configuration must be an argument: sbatch SCRIPT ARGOSY_CONFIG=$root/configs/$1.json"
  fi
  export SLURM_EXPORT_ENV=ALL PATH # for the ranks: srun would follow the setting of sbatch
  # Since Slurm 22.05, srun does not take this setting from the job.
  if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
  site=$(argosy_site) || exit
  launch=()
  # shellcheck source=jobs/sites/default.sh
  . "$site" || argosy_fail 2 "the site file $site failed (its message is above); check that this machine has the modules, containers and variables that it uses"
  ((${#launch[@]})) || argosy_fail 2 "the site file $site does not set the array launch; see jobs/sites/example.sh"
  command -v "${launch[0]}" >/dev/null || argosy_fail 2 "${launch[0]}, which $site launches with, is not on PATH"
  # The ranks and nodes of this allocation. Every tool fails if it finds another number of ranks (such as by srun without --mpi=pmi2)
  # or fewer nodes.
  argosy_number expected_nodes SLURM_JOB_NUM_NODES 1
  argosy_number ranks SLURM_NTASKS_PER_NODE 1
  argosy_number expected_ranks SLURM_NTASKS $((expected_nodes * ranks))
  argosy_number restart SLURM_RESTART_COUNT 0
  config=${ARGOSY_CONFIG:-$root/configs/$1.json}
  if [[ $config == -* ]]; then config=./$config; fi
  argosy_run_dir "$config" "${@:2}"
  mkdir -p "$run" || argosy_fail 4 "cannot create the run directory $run"
  # Each start adds a line to starts.<job>. Without that file this is the first start, and SLURM_RESTART_COUNT comes from a job that
  # has submitted this one.
  if [ ! -e "$run/starts.$SLURM_JOB_ID" ]; then restart=0; fi
  export SLURM_RESTART_COUNT=$restart # leases distinguish starts by it
  # Remove files of another cluster's job with the same number.
  if ((restart == 0)); then rm -f "$run/exit.$SLURM_JOB_ID."* "$run/starts.$SLURM_JOB_ID"; fi
  export ARGOSY_EXIT_FILE=$run/exit.$SLURM_JOB_ID.$restart
}

# argosy_made FOLDER: ends a job whose result exists; a result appears only when it is complete. At the job's first start the result
# did not exist, because that start would have failed here without a line in starts.<job>. So an earlier start has made it.
argosy_made() {
  if [ ! -e "$1" ]; then return; fi
  ((restart)) || argosy_fail 2 "$1 exists and is never overwritten; rename or remove it to make it again"
  echo "$1 exists: an earlier start of this job has made it" >&2
  rm -f "$ARGOSY_EXIT_FILE" && echo "0 $newest" >"$ARGOSY_EXIT_FILE"
  exit 0
}

# argosy_checkpoints: sets the array `checkpoints` to the committed ones, one per step, oldest first. The last step of a finished run
# is in export only.
argosy_checkpoints() {
  local said i
  checkpoints=()
  said=$("$root/apps/status" "$run" --print checkpoints) || argosy_fail 4 "apps/status cannot read the run directory $run (its message is above)"
  if [ -n "$said" ]; then mapfile -t checkpoints <<<"$said"; fi
  for i in "${!checkpoints[@]}"; do checkpoints[i]=$run/${checkpoints[i]}; done
  ((${#checkpoints[@]} > 1)) || argosy_fail 3 "$run must hold at least two checkpoints, got ${#checkpoints[@]}"
}

# argosy_tool TOOL ARGUMENT…: runs apps/TOOL, asks for a requeue if that helps, and exits with its code.
argosy_tool() {
  local tool=$1 program=$root/apps/$1
  [ -x "$program" ] || argosy_fail 2 "$program does not exist; build it, or set ARGOSY_ROOT"
  shift
  export ARGOSY_EXPECT_RANKS=$expected_ranks ARGOSY_EXPECT_NODES=$expected_nodes
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # waiting threads leave their cores to others
  argosy_deadline
  argosy_count_start "$tool"
  argosy_run "$program" "$@"
  if [ "$tool" = train ]; then argosy_sync_wandb "$@"; fi
  argosy_verdict
}

# argosy_sync_wandb ARGUMENT…: if telemetry.wandb.mode is online, uploads the run to Weights & Biases. The arguments are those of apps/train.
# The key is passed in the environment of one process, and is in no argument, file or message. A failure changes no exit code. A job
# that has to stop keeps its time for the requeue.
argosy_sync_wandb() {
  local key=${WANDB_API_KEY:-} limit_s=600 folders=("$run"/wandb/offline-run-*) missing=''
  if ((ending)) || [ ! -d "${folders[0]}" ]; then return 0; fi
  [ "$("$root/apps/train" "$@" --print-config telemetry.wandb.mode --raw 2>/dev/null)" = online ] || return 0
  if [ -z "$key" ] && [ -n "${WANDB_API_KEY_PATH:-}" ]; then { key=$(<"$WANDB_API_KEY_PATH"); } 2>/dev/null; fi
  if ((rc == 75)); then limit_s=60; fi
  if [ -z "$key" ]; then
    missing='neither WANDB_API_KEY nor the file in WANDB_API_KEY_PATH gives a key'
  elif ! command -v wandb >/dev/null; then
    missing='the program wandb is not on PATH'
  elif ! WANDB_API_KEY=$key timeout -k 5 "$limit_s" wandb sync --include-synced "${folders[@]}" </dev/null >&2; then
    missing="wandb sync failed or took longer than $limit_s s"
  fi
  [ -z "$missing" ] || echo "${SLURM_JOB_NAME:-job}: the run is not uploaded to Weights & Biases: $missing; upload it with: wandb sync --include-synced ${folders[*]}" >&2
}

# Sets ARGOSY_DEADLINE to the end of this allocation, in seconds since 1970, if Slurm knows it.
argosy_deadline() {
  local end=${SLURM_JOB_END_TIME:-}
  if [ -z "$end" ]; then
    end=$(SLURM_TIME_FORMAT=standard squeue -h -j "$SLURM_JOB_ID" -o %e 2>/dev/null)
    if [ -n "$end" ]; then end=$(date -d "$end" +%s 2>/dev/null); fi # "NONE" is not a date
  fi
  if [[ $end =~ ^[0-9]{1,18}$ ]]; then export ARGOSY_DEADLINE=$end; fi
}

# argosy_ask: reads the state of this job from the run directory. newest: the newest committed step (0: none); fruitless: how many of
# the latest starts found that step; first: when the job first started; code, why: from the exit file of this start. Returns false if
# the run directory cannot be read.
argosy_ask() {
  local said key value
  newest=0 fruitless=0 first='' code='' why=''
  said=$("$root/apps/status" "$run" --print job --job "$SLURM_JOB_ID" --restart "$restart") || return
  while read -r key value; do
    if [[ $key =~ ^(newest|fruitless|first|code|why)$ && $value =~ ^([0-9]{1,18}|[a-z_]+)$ ]]; then printf -v "$key" %s "$value"; fi
  done <<<"$said"
  [[ $newest$fruitless =~ ^[0-9]+$ && $first$code =~ ^[0-9]*$ ]]
}

# A training that restarts several times without a newer checkpoint ends with 70. Each start appends the newest step and the time to
# starts.<job>. The time of a job's first start is part of ARGOSY_REQUEST, by which the trainer knows whether it has already carried
# out --from-scratch or --resume.
readonly argosy_most_starts=3
argosy_count_start() { # argosy_count_start TOOL
  local now
  now=$(date +%s)
  argosy_ask || argosy_fail 4 "apps/status cannot read the run directory $run (its message is above)"
  [ "$1" != train ] || ((fruitless < argosy_most_starts)) ||
    argosy_fail 70 "$argosy_most_starts starts in a row made no checkpoint newer than step $newest, so the job is not started again; see above how they ended, and check that a step and a save fit into --time"
  argosy_own "$run/starts.$SLURM_JOB_ID"
  echo "$newest $now" >>"$run/starts.$SLURM_JOB_ID" || argosy_fail 4 "cannot write $run/starts.$SLURM_JOB_ID"
  export ARGOSY_REQUEST=slurm.$SLURM_JOB_ID.${first:-$now}
}

# argosy_run PROGRAM…: launches the program, passes USR1 on, and waits. Sets rc, the variables of argosy_ask, and ending=1 if Slurm
# ends the job (Slurm then signals the ranks as well).
# The program runs in the background, because bash runs no trap while a foreground child runs. A wait that a trap interrupts is
# repeated; the last one returns the code of the program.
argosy_run() {
  rc=0
  rm -f "$ARGOSY_EXIT_FILE"
  "${launch[@]}" "$@" <&0 & # bash would give it an empty standard input
  pid=$!
  if ((woken)); then sleep 2 && kill -USR1 "$pid"; fi # the signal came early: a launcher that has no handler yet would die of it
  while :; do
    woken=0
    wait "$pid"
    rc=$?
    ((woken)) || break
  done
  # Launchers lose codes (they return the highest, also of killed ranks), so the program's exit file comes first. Without one, 1 is a
  # launcher that failed, and 137 or 143 are ranks that it killed, as when they cannot find each other: another start may succeed.
  argosy_ask || return 0
  if [ -n "$code" ]; then
    rc=$code
  elif ((!ending && (rc == 1 || rc == 137 || rc == 143))); then
    echo "${SLURM_JOB_NAME:-job}: ${launch[0]} ended with $rc before the program wrote its exit code; this counts as 5" >&2
    rc=5
  fi
}

# Exits with rc. A job with 75 (stopped, saved) or 5 (rank or device lost) is requeued, unless Slurm is ending the job, a user asked
# for the stop, or its starts make no progress.
argosy_verdict() {
  if ((ending)); then exit "$rc"; fi # already cancelled, preempted or requeued: another requeue would be wrong
  if ((rc != 75 && rc != 5)); then exit "$rc"; fi
  if [ "$why" = stop_file ]; then
    echo "${SLURM_JOB_NAME:-job}: saved step $newest and stopped, because the file named by stop.file exists; the job is not requeued; to resume, remove the file and submit again" >&2
    exit "$rc"
  fi
  if ((rc == 5)); then
    echo "${SLURM_JOB_NAME:-job}: lost a rank or a device on ${SLURM_JOB_NODELIST:-these nodes} (starts in a row without a newer checkpoint: $fruitless)" >&2
  fi
  if ((fruitless < argosy_most_starts)); then
    argosy_requeue
  elif ((rc == 75)); then
    argosy_fail 70 "stopped $fruitless times in a row at step $newest, because no step fits between start and stop; submit with a longer --time"
  fi
  exit "$rc"
}

# After a requeue, Slurm ends this script with TERM; if the script ended first, the job would be complete. If slurmctld does not
# answer, it is asked again.
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
queue=() # what Slurm says about the jobs, as options for apps/status

# argosy_read_stages RUN OPTION…: sets job and state of each stage to what apps/status says with these options.
argosy_read_stages() {
  local said stage number text
  for stage in "${argosy_stages[@]}"; do job[$stage]='' state[$stage]=new; done
  [ -d "$1" ] || return 0 # nothing has been submitted
  said=$("$root/apps/status" "$1" --print stages "${@:2}") || argosy_fail 4 "apps/status cannot read $1 (its message is above)"
  while read -r stage number text; do
    if [[ $stage =~ ^(count|preprocess|train|soup|export)$ && $number =~ ^[0-9]{1,18}$ ]]; then job[$stage]=$number state[$stage]=$text; fi
  done <<<"$said"
}

# argosy_read_chain RUN: the same after asking Slurm; also sets queue. lib/telemetry/FORMAT.md explains the states.
argosy_read_chain() {
  local stage line
  argosy_read_stages "$1"
  queue=()
  for stage in "${argosy_stages[@]}"; do
    [ -n "${job[$stage]}" ] || continue
    if ! line=$(squeue -h -j "${job[$stage]}" -o '%T %r' 2>&1); then
      # If Slurm does not answer, the job may still exist; submitting it again would run it twice.
      [[ $line == *'Invalid job id'* ]] || argosy_fail 2 "Slurm does not tell the state of job ${job[$stage]}; try again later: $line"
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

argosy_json_string() { # argosy_json_string TEXT: in quotes, with escapes; bytes that are not UTF-8 are left out
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
