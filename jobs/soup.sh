#!/bin/bash
#SBATCH --job-name=soup --output=%x.%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=16 --exclusive --mem=0
#SBATCH --time=02:00:00 --requeue
#
# Averages the checkpoints of a run. From a clone, build tree or install tree:
#   ARGOSY_CONFIG=configs/mt.json sbatch jobs/soup.sh
#   ARGOSY_CONFIG=configs/mt.json sbatch jobs/soup.sh --recipe last_k --last 5
# Needs:   apps/soup and two checkpoints or more in the run directory; with --validate every rank holds a model.
# Stops:   at its limit, and is begun again after the loss of its node; nothing half made stays.
# Leaves:  <run directory>/soup, which it never overwrites, and exit.<job>.<restart> beside it.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

argosy_start mistral_7b
argosy_made "$run/soup"
argosy_tool soup "$run"/checkpoints/[0-9]* --out "$run/soup" "$@"
