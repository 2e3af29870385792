#!/bin/bash
#SBATCH --job-name=translate --output=%x.%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=16 --exclusive --mem=0
#SBATCH --time=04:00:00 --requeue
#
# Translates a file line by line with the soup of a run. From a clone, build tree or install tree:
#   sbatch jobs/translate.sh ARGOSY_CONFIG=configs/mt_base.json ARGOSY_INPUT=test.en ARGOSY_OUTPUT=test.fr --beam 4
# Needs:   apps/translate, ARGOSY_INPUT, and <run directory>/soup or the checkpoint that ARGOSY_MODEL names.
# Stops:   at its time limit. Slurm restarts it after the loss of its node.
# Leaves:  ARGOSY_OUTPUT, which appears (or is replaced) when all lines are translated, and exit.<job>.<restart> in the run
#          directory. A killed job leaves ARGOSY_OUTPUT.tmp-<nonce>, which you may remove.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

argosy_start mistral_7b
for name in ARGOSY_INPUT ARGOSY_OUTPUT; do
  [ -n "${!name:-}" ] || argosy_fail 2 "$name is not set; ARGOSY_INPUT names the file to translate, ARGOSY_OUTPUT the file to write"
done
[ -r "$ARGOSY_INPUT" ] || argosy_fail 3 "cannot read $ARGOSY_INPUT (ARGOSY_INPUT)"
argosy_tool translate "${ARGOSY_MODEL:-$run/soup}" --input "$ARGOSY_INPUT" --output "$ARGOSY_OUTPUT" "$@"
