#!/bin/bash
#
# Submits a configuration's whole chain, each stage behind the one before: count → preprocess → train → soup → export.
#   jobs/chain.sh configs/mt_base.json
# Run it where sbatch is, not under it. The same command again submits only what is not done.
# Needs:   apps/, texts and site file; configuration and memory plan are checked here, before anything is queued.
# Stops:   a stage that fails takes its dependants out of the queue; stages requeue as their own scripts say.
# Leaves:  <run directory>/chain.json; what each stage leaves stands in its script. jobs/status.sh tells how far it is.
set -uo pipefail
root=${ARGOSY_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# Called inside a job, this is no part of it: sbatch would hand that job's variables on (SLURM_RESTART_COUNT, SLURM_NTASKS).
# What says where Slurm is, and who asks, stays.
for name in "${!SLURM_@}"; do
  if [[ ! $name =~ ^SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT)$ ]]; then unset "$name"; fi
done
SLURM_JOB_NAME=chain
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

usage() {
  cat <<'TEXT'
usage: jobs/chain.sh CONFIG [OPTION…] [-- SBATCH OPTION…]

Submits count → preprocess → train → soup → export for a configuration; options behind -- go to every sbatch.

  --dry-run         checks everything, and says what would be submitted
  --train SCRIPT    train_16node.sh; or train_1node.sh
  --from STAGE      this stage and all behind it again, done or not
  --on STAGE WORDS  sbatch options of one stage, as one word
  --to STAGE WORDS  words for the tool of one stage, as one word

  jobs/chain.sh configs/mt_base.json --train train_1node.sh --to soup '--recipe last_k --last 5'
  jobs/chain.sh configs/tiny.json --on train '--nodes=3 --ntasks-per-node=1' -- --gpus-per-node=0 --time=30

Exit codes: 0 all is done or queued · 2 configuration, site or plan, or Slurm refuses: nothing is queued · 4 run directory.
TEXT
}

config='' dry=0 from='' common=()
declare -A script=() on=() to=()
for stage in "${argosy_stages[@]}"; do script[$stage]=$stage.sh; done
script[train]=train_16node.sh
while (($#)); do
  case $1 in
    --from | --on | --to)
      [[ " ${argosy_stages[*]} " == *" ${2:-nothing} "* ]] || argosy_fail 2 "$1 wants a stage (${argosy_stages[*]}), got ${2:-nothing}"
      ;;&
    --on | --to) (($# > 2)) || argosy_fail 2 "$1 $2 wants words, such as '--nodes=4'" ;;&
    --train) (($# > 1)) || argosy_fail 2 "--train wants a script of jobs/" ;;&
    -h | --help) usage && exit 0 ;;
    --dry-run) dry=1 ;;
    --from) from=$2 && shift ;;
    --on) on[$2]+=" $3" && shift 2 ;;
    --to) to[$2]+=" $3" && shift 2 ;;
    --train) script[train]=$2 && shift ;;
    --) common=("${@:2}") && break ;;
    -*) argosy_fail 2 "there is no option $1 (jobs/chain.sh --help)" ;;
    *)
      [ -z "$config" ] || argosy_fail 2 "wanted one configuration, got $config and $1"
      config=$1
      ;;
  esac
  shift
done
[ -n "$config" ] || { usage >&2 && argosy_fail 2 "no configuration"; }

# options STAGE: its sbatch options, one a line.
options() {
  local words
  read -ra words <<<"${on[$1]:-}"
  printf '%s\n' "${common[@]}" "${words[@]}" | sed '/^$/d'
}
for word in $(options train); do
  case $word in
    -N* | -n* | --nodes | --ntasks | --ntasks-per-node | --gpus-per-node) argosy_fail 2 "write $word as --option=value, so that the memory plan knows it" ;;
  esac
done
[[ ${to[train]:-} != *run_dir=* ]] || argosy_fail 2 "the run directory is the configuration's: the stages behind training would not find another"
# asked STAGE OPTION: the value its job will have for --OPTION=VALUE.
asked() {
  { sed -n 's/^#SBATCH//p' "$root/jobs/${script[$1]}" | tr ' ' '\n' && options "$1"; } | sed -n "s/^--$2=//p" | tail -n 1
}
# asked_number TO OPTION DEFAULT: sets TO to what training's job will have.
asked_number() {
  local given
  given=$(asked train "$2")
  given=${given:-$3}
  [[ $given =~ ^[1-9][0-9]{0,8}$ ]] || argosy_fail 2 "wanted one number in --$2 of training, so that the memory plan knows it, got $given"
  printf -v "$1" %s "$given"
}
# tool_words STAGE: sets the array `words` to those for its tool.
tool_words() { read -ra words <<<"${to[$1]:-}"; }
# submit STAGE OPTION…: sbatch, with the stage's options and words. What the job has to know are words: a site may have sbatch
# export no variables, and --export takes no name with a comma.
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
  argosy_fail 2 "no sbatch here; without Slurm: mpiexec -n 2 apps/count $config, and so on with preprocess, train, soup and export (README)"
argosy_site >/dev/null || exit
for stage in "${argosy_stages[@]}"; do
  [ -r "$root/jobs/${script[$stage]}" ] || argosy_fail 2 "no $root/jobs/${script[$stage]}"
  [ -x "$root/apps/$stage" ] || argosy_fail 2 "no $root/apps/$stage: build it, or set ARGOSY_ROOT"
done
[ -x "$root/apps/status" ] || argosy_fail 2 "no $root/apps/status: build it, or set ARGOSY_ROOT"
argosy_run_dir "$config"

if ((!dry)); then # a file system without flock is none to refuse
  mkdir -p "$run" || argosy_fail 4 "cannot create the run directory $run"
  argosy_own "$run/chain.lock"
  if ! [ -w "$run" ] || ! : >>"$run/chain.lock"; then argosy_fail 4 "cannot write in the run directory $run"; fi
  exec 9>>"$run/chain.lock"
  flock -n -E 9 9
  (($? != 9)) || argosy_fail 2 "another jobs/chain.sh is submitting for $run: wait for it"
fi
argosy_read_chain "$run"
declare -A result=([soup]=soup [export]=ct2) # folders that appear whole and are never overwritten
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
      { echo "$said" >&2 && argosy_fail 2 "the plan of training is refused (above); nothing was submitted"; }
  fi
  if [ "$stage" = soup ] && [[ ${to[soup]:-} != *--recipe* ]] &&
    [ "$("$root/apps/train" "$config" --print-config validation.sets)" = '[]' ] && [ "$("$root/apps/train" "$config" --print-config data.split)" = null ]; then
    argosy_fail 2 "$config names no text to validate on, by which soup decides; nothing was submitted: add validation.sets, or say --to soup '--recipe uniform'"
  fi
  said=$(submit "$stage" --test-only 2>&1) || argosy_fail 2 "Slurm refuses $stage, nothing was submitted: $said"
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
    # A job that is replaced goes when all is submitted, and its successor waits until it is gone.
    if [[ ${state[$stage]} == queued* ]]; then old+=("${job[$stage]}") behind+=${behind:+,}afterany:${job[$stage]}; fi
    if [ -n "$behind" ]; then after=("--dependency=$behind" --kill-on-invalid-dep=yes); fi
    if ! number=$(submit "$stage" --parsable "${after[@]}"); then
      if ((${#new[@]})); then scancel "${new[@]}"; fi
      argosy_fail 2 "Slurm refuses $stage (above); what this call had queued is cancelled"
    fi
    number=${number%%;*} # a federation adds the cluster's name
    [[ $number =~ ^[0-9]{1,18}$ ]] || argosy_fail 2 "sbatch answered $number, which is no job number; queued so far: ${new[*]} and perhaps this one"
    job[$stage]=$number
    new+=("${job[$stage]}")
    rm -f "$run/exit.${job[$stage]}."* # of another cluster's job of this number
    write_chain || argosy_fail 4 "cannot write $run/chain.json; queued so far: ${new[*]}"
    made=$run/${result[$stage]:-none}
    if [ -e "$made" ]; then mv "$made" "$made.old-$(date +%s)" && echo "$made is set aside: it will be made again" >&2; fi
    state[$stage]="submitted${previous:+ behind $previous}"
  fi
  if [ "${state[$stage]}" != 'done' ]; then previous=${job[$stage]}; fi
done
if ((${#old[@]})); then scancel "${old[@]}"; fi

argosy_print_chain
if ((${#new[@]})); then echo "take it back with: scancel ${new[*]}"; fi
echo "result {\"tool\":\"chain\",\"status\":\"ok\",\"run_dir\":$(argosy_json_string "$run"),\"submitted\":${#new[@]},\"stages\":$(argosy_chain_json)}"
