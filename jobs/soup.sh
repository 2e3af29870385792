#!/bin/bash
#SBATCH --job-name=soup --output=%x.%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=16 --exclusive --mem=0
#SBATCH --time=02:00:00 --requeue
#
# Averages the checkpoints of a run. From a clone, build tree or install tree:
#   sbatch jobs/soup.sh ARGOSY_CONFIG=configs/mt_base.json
#   sbatch jobs/soup.sh ARGOSY_CONFIG=configs/mt_base.json --recipe last_k --last 5
# Without --recipe, it averages those of the last four checkpoints that lower the loss on the configuration's validation sets, as
# scripts/quickstart does. With --recipe, it takes all checkpoints of the run, and validates only if --validate is given. A step
# that is both in checkpoints and in export is taken once.
# Needs:   apps/soup, and at least two checkpoints in the run directory. With validation, every rank holds the model in fp32;
#          for a large model, use fewer ranks, such as --ntasks-per-node=2 --cpus-per-task=32.
# Stops:   at its time limit. Slurm restarts it after the loss of its node; the result appears only when it is complete.
# Leaves:  <run directory>/soup, which it never overwrites, and exit.<job>.<restart> next to it.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

argosy_start mistral_7b
argosy_made "$run/soup"
argosy_checkpoints
if [[ " $*" != *' --recipe'* ]]; then
  if ((${#checkpoints[@]} > 4)); then checkpoints=("${checkpoints[@]: -4}"); fi
  set -- --recipe greedy --validate "$config" "$@"
fi
argosy_tool soup "${checkpoints[@]}" --out "$run/soup" "$@"
