#!/bin/bash
#SBATCH --job-name=preprocess --output=%x.%j.out --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=16 --exclusive --mem=0
#SBATCH --time=12:00:00 --requeue
#
# Trains the tokenizer if the configuration asks for one, and writes token shards. From a clone, build tree or install tree:
#   sbatch jobs/preprocess.sh ARGOSY_CONFIG=configs/mt_base.json
# If the tokenizer file exists but was trained on other text or with other settings, the job ends with 2; --retrain-tokenizer
# replaces it.
# Needs:   apps/preprocess, and the texts that the configuration names.
# Stops:   at its time limit. Slurm restarts it after the loss of its node; a shard appears only when it is complete.
# Leaves:  tokenizer and shards where the configuration says, and exit.<job>.<restart> in the run directory.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

argosy_start mistral_7b
argosy_tool preprocess "$config" "$@"
