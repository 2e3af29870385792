#!/bin/bash
#
# Submits the whole chain of a configuration, each stage after the previous one: count → preprocess → train → soup → export.
#   jobs/chain.sh configs/mt_base.json
# Run it on a login node, not with sbatch. The same command again submits only the stages that are not done.
# Needs:   apps/, texts and a site file. Configuration and memory plan are checked before anything is queued.
# Stops:   if a stage fails, Slurm cancels the later ones. Each stage requeues itself as its own script says.
# Leaves:  <run directory>/chain.json, and what the stages leave. jobs/status.sh shows the state of the chain.
set -uo pipefail
root=${ARGOSY_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# If this script is called inside a job, sbatch would pass on variables of that job (SLURM_RESTART_COUNT, SLURM_NTASKS). Only the
# variables that name the cluster and the user are kept.
for name in "${!SLURM_@}"; do
  if [[ ! $name =~ ^SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT)$ ]]; then unset "$name"; fi
done
SLURM_JOB_NAME=chain
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

usage() {
  cat <<'TEXT'
usage: jobs/chain.sh CONFIG [OPTION…] [-- SBATCH OPTION…]

Submits count → preprocess → train → soup → export for a configuration. Options after -- go to every sbatch. Stages that are done
are left out. If any check fails, nothing is queued.

  --dry-run         check everything, and show what would be submitted
  --train SCRIPT    the script for training: train_16node.sh (default) or train_1node.sh
  --from STAGE      rerun this stage and all later ones, even if they are done
  --on STAGE WORDS  sbatch options for one stage, quoted as one argument
  --to STAGE WORDS  arguments for the tool of one stage, quoted as one argument

  jobs/chain.sh configs/mt_base.json --train train_1node.sh --to soup '--recipe last_k --last 5'
  jobs/chain.sh configs/tiny.json --on train '--nodes=3 --ntasks-per-node=1' -- --gpus-per-node=0 --time=30

Exit codes: 0 every stage is done or queued · 2 a check failed, or Slurm refused a stage: nothing is queued · 4 the run directory
cannot be read or written.
TEXT
}

config='' dry=0 from='' common=()
declare -A script=() on=() to=()
for stage in "${argosy_stages[@]}"; do script[$stage]=$stage.sh; done
script[train]=train_16node.sh
while (($#)); do
  case $1 in
    --from | --on | --to)
      [[ " ${argosy_stages[*]} " == *" ${2:-nothing} "* ]] || argosy_fail 2 "$1 needs a stage (${argosy_stages[*]}), got ${2:-nothing}"
      ;;&
    --on | --to) (($# > 2)) || argosy_fail 2 "$1 $2 needs options in quotes, such as '--nodes=4'" ;;&
    --train) (($# > 1)) || argosy_fail 2 "--train needs the name of a script in jobs/" ;;&
    -h | --help) usage && exit 0 ;;
    --dry-run) dry=1 ;;
    --from) from=$2 && shift ;;
    --on) on[$2]+=" $3" && shift 2 ;;
    --to) to[$2]+=" $3" && shift 2 ;;
    --train) script[train]=$2 && shift ;;
    --) common=("${@:2}") && break ;;
    -*) argosy_fail 2 "unknown option $1; see jobs/chain.sh --help" ;;
    *)
      [ -z "$config" ] || argosy_fail 2 "expected one configuration, got $config and $1"
      config=$1
      ;;
  esac
  shift
done
[ -n "$config" ] || { usage >&2 && argosy_fail 2 "no configuration is given"; }

# options STAGE: its sbatch options, one per line.
options() {
  local words
  read -ra words <<<"${on[$1]:-}"
  printf '%s\n' "${common[@]}" "${words[@]}" | sed '/^$/d'
}
for word in $(options train); do
  case $word in
    -N* | -n* | --nodes | --ntasks | --ntasks-per-node | --gpus-per-node) argosy_fail 2 "$word must be written as --option=value, so that the memory plan can read it" ;;
  esac
done
[[ ${to[train]:-} != *run_dir=* ]] || argosy_fail 2 "--to train cannot set run_dir: the later stages would not find it; set it in the configuration"
# asked STAGE OPTION: the value of --OPTION=VALUE that its job will have.
asked() {
  { sed -n 's/^#SBATCH//p' "$root/jobs/${script[$1]}" | tr ' ' '\n' && options "$1"; } | sed -n "s/^--$2=//p" | tail -n 1
}
# asked_number TO OPTION DEFAULT: sets TO to the value that the job of training will have.
asked_number() {
  local given
  given=$(asked train "$2")
  given=${given:-$3}
  [[ $given =~ ^[1-9][0-9]{0,8}$ ]] || argosy_fail 2 "--$2 of training must be one number, so that the memory plan can read it; got $given"
  printf -v "$1" %s "$given"
}
# tool_words STAGE: sets the array `words` to the arguments for its tool.
tool_words() { read -ra words <<<"${to[$1]:-}"; }
# submit STAGE OPTION…: calls sbatch with the options and arguments of the stage. Settings are passed as arguments, because a site
# may keep sbatch from exporting variables, and --export takes no value with a comma.
submit() {
  local stage=$1 name settings=("ARGOSY_ROOT=$root" "ARGOSY_CONFIG=$config") options words
  for name in ARGOSY_SITE ARGOSY_MODEL ARGOSY_STOP_NOTICE_S OMP_NUM_THREADS; do
    if [ -n "${!name:-}" ]; then settings+=("$name=${!name}"); fi
  done
  mapfile -t options < <(options "$stage")
  tool_words "$stage"
  sbatch "${options[@]}" "${@:2}" "$root/jobs/${script[$stage]}" "${settings[@]}" "${words[@]}"
}

command -v sbatch >/dev/null ||
  argosy_fail 2 "sbatch is not on PATH; without Slurm, run the tools one by one: mpiexec -n 2 apps/count $config, then preprocess, train, soup and export (README.md)"
argosy_site >/dev/null || exit
for stage in "${argosy_stages[@]}"; do
  [ -r "$root/jobs/${script[$stage]}" ] || argosy_fail 2 "$root/jobs/${script[$stage]} does not exist; give a script of jobs/ to --train"
  [ -x "$root/apps/$stage" ] || argosy_fail 2 "$root/apps/$stage does not exist; build it, or set ARGOSY_ROOT"
done
[ -x "$root/apps/status" ] || argosy_fail 2 "$root/apps/status does not exist; build it, or set ARGOSY_ROOT"
argosy_run_dir "$config"

if ((!dry)); then # flock may fail: some file systems do not have it
  mkdir -p "$run" || argosy_fail 4 "cannot create the run directory $run"
  argosy_own "$run/chain.lock"
  if ! [ -w "$run" ] || ! : >>"$run/chain.lock"; then argosy_fail 4 "cannot write in the run directory $run"; fi
  exec 9>>"$run/chain.lock"
  flock -n -E 9 9
  (($? != 9)) || argosy_fail 2 "another jobs/chain.sh is submitting for $run; wait until it ends"
fi
argosy_read_chain "$run"
declare -A result=([soup]=soup [export]=ct2) # folders that appear when they are complete and are never overwritten
todo=()
for stage in "${argosy_stages[@]}"; do
  made=$run/${result[$stage]:-none}
  if ((!${#todo[@]})) && [ "$stage" != "$from" ] && [ -e "$made" ] && [[ ${state[$stage]} != queued* ]]; then state[$stage]='done'; fi
  if ((${#todo[@]})) || [ "$stage" = "$from" ] || [[ ! ${state[$stage]} =~ ^(done|queued) ]]; then todo+=("$stage"); fi
done

for stage in "${todo[@]}"; do
  if [ "$stage" = train ]; then
    plan=() nodes=1 per_node=1 ranks=1
    asked_number nodes nodes 1
    asked_number per_node ntasks-per-node 1
    asked_number ranks ntasks $((nodes * per_node))
    if [ "$(asked train gpus-per-node)" = 0 ]; then plan=(--set device=cpu); fi
    tool_words train
    said=$("$root/apps/train" "$config" "${words[@]}" --dry-run --nodes "$nodes" --ranks "$ranks" "${plan[@]}" 2>&1) ||
      { echo "$said" >&2 && argosy_fail 2 "the plan of training failed (its message is above); nothing is queued"; }
  fi
  if [ "$stage" = soup ] && [[ ${to[soup]:-} != *--recipe* ]] &&
    [ "$("$root/apps/train" "$config" --print-config validation.sets)" = '[]' ] && [ "$("$root/apps/train" "$config" --print-config data.split)" = null ]; then
    argosy_fail 2 "$config names no validation text, which soup needs to select checkpoints; add validation.sets, or give --to soup '--recipe uniform'; nothing is queued"
  fi
  if [ "$stage" = export ] && [[ ${to[export]:-} != *--task* ]] && "$root/apps/train" "$config" --print-tasks 2>&1 </dev/null | grep -Eq '^[0-9]+ tasks, '; then
    argosy_fail 2 "$config is a model of several tasks, and export writes one of them; give --to export '--task NAME' (apps/train $config --print-tasks lists them); nothing is queued"
  fi
  said=$(submit "$stage" --test-only 2>&1) || argosy_fail 2 "Slurm refuses the job of $stage; nothing is queued: $said"
done
if ((dry)); then
  for stage in "${todo[@]}"; do state[$stage]="to be submitted: sbatch $(options "$stage" | tr '\n' ' ')jobs/${script[$stage]}${to[$stage]:-}"; done
  argosy_print_chain
  exit 0
fi

write_chain() {
  local stage
  rm -f "$run/chain.json.tmp" || return
  {
    printf '{"config":%s,"stages":[\n' "$(argosy_json_string "$config")"
    for stage in "${argosy_stages[@]}"; do printf '{"stage":"%s","job":"%s"}%s\n' "$stage" "${job[$stage]}" "$([ "$stage" = export ] || echo ,)"; done
    echo ']}'
  } >"$run/chain.json.tmp" && mv "$run/chain.json.tmp" "$run/chain.json"
}

new=() old=() previous=''
for stage in "${argosy_stages[@]}"; do
  if [[ " ${todo[*]} " == *" $stage "* ]]; then
    behind='' after=()
    if [ -n "$previous" ]; then behind=afterok:$previous; fi
    # A replaced job is cancelled once everything is submitted; its successor waits until it has ended.
    if [[ ${state[$stage]} == queued* ]]; then old+=("${job[$stage]}") behind+=${behind:+,}afterany:${job[$stage]}; fi
    if [ -n "$behind" ]; then after=("--dependency=$behind" --kill-on-invalid-dep=yes); fi
    if ! number=$(submit "$stage" --parsable "${after[@]}"); then
      if ((${#new[@]})); then scancel "${new[@]}"; fi
      argosy_fail 2 "Slurm refuses the job of $stage (its message is above); the jobs that this call had queued are cancelled"
    fi
    number=${number%%;*} # a federation adds the cluster's name
    [[ $number =~ ^[0-9]{1,18}$ ]] || argosy_fail 2 "sbatch answered $number, which is not a job number; queued so far: ${new[*]:-none}, and perhaps the job of $stage; see squeue"
    job[$stage]=$number
    new+=("${job[$stage]}")
    rm -f "$run/exit.${job[$stage]}."* # of another cluster's job of this number
    write_chain || argosy_fail 4 "cannot write $run/chain.json; queued so far: ${new[*]}"
    made=$run/${result[$stage]:-none}
    if [ -e "$made" ]; then mv "$made" "$made.old-$(date +%s)" && echo "$made is renamed to $made.old-…, because this chain makes it again" >&2; fi
    state[$stage]="submitted${previous:+ after $previous}"
  fi
  if [ "${state[$stage]}" != 'done' ]; then previous=${job[$stage]}; fi
done
if ((${#old[@]})); then scancel "${old[@]}"; fi

argosy_print_chain
if ((${#new[@]})); then echo "to cancel the chain: scancel ${new[*]}"; fi
echo "result {\"tool\":\"chain\",\"status\":\"ok\",\"run_dir\":$(argosy_json_string "$run"),\"submitted\":${#new[@]},\"stages\":$(argosy_chain_json)}"
