#!/bin/bash
#SBATCH --job-name=count --output=%x.%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=16 --exclusive --mem=0
#SBATCH --time=04:00:00 --requeue
#
# Counts lines, words, bytes and characters of a configuration's texts. From a clone, build tree or install tree:
#   sbatch jobs/count.sh ARGOSY_CONFIG=configs/mt_base.json
# Needs:   apps/count, and the texts that the configuration names.
# Stops:   at its time limit. Slurm restarts it after the loss of its node; counts that are done are cached.
# Leaves:  the counts in its log count.<job>.out, and exit.<job>.<restart> in the run directory.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

argosy_start mistral_7b
argosy_tool count "$config" "$@"
