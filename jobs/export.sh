#!/bin/bash
#SBATCH --job-name=export --output=%x.%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=4 --mem-per-cpu=8G
#SBATCH --time=01:00:00 --requeue
#
# Writes the soup of a run as a CTranslate2 folder. From a clone, build tree or install tree:
#   sbatch jobs/export.sh ARGOSY_CONFIG=configs/mt_base.json
#   sbatch jobs/export.sh ARGOSY_MODEL=CKPT ARGOSY_CONFIG=configs/mt_base.json --quantization int8
# Needs:   apps/export, and <run directory>/soup or the checkpoint that ARGOSY_MODEL names.
# Stops:   at its time limit. Slurm restarts it after the loss of its node; the result appears only when it is complete.
# Leaves:  <run directory>/ct2, which it never overwrites, and exit.<job>.<restart> next to it.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

argosy_start mistral_7b
argosy_made "$run/ct2"
argosy_tool export "${ARGOSY_MODEL:-$run/soup}" --out "$run/ct2" "$@"
