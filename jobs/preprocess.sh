#!/bin/bash
#SBATCH --job-name=preprocess --output=%x.%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=16 --exclusive --mem=0
#SBATCH --time=12:00:00 --requeue
#
# Trains the tokenizer where the configuration asks for one, and writes token shards. From a clone, build tree or install tree:
#   sbatch jobs/preprocess.sh ARGOSY_CONFIG=configs/mt_base.json
# A tokenizer that was trained on other text or with other settings is kept, and the job ends with 2, unless the script is given
# --retrain-tokenizer.
# Needs:   apps/preprocess and the texts the configuration names.
# Stops:   at its limit, and is begun again after the loss of its node: shards appear whole or not at all.
# Leaves:  tokenizer and shards where the configuration says, exit.<job>.<restart> in the run directory.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

argosy_start mistral_7b
argosy_tool preprocess "$config" "$@"
