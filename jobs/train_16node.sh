#!/bin/bash
#SBATCH --job-name=train16 --output=%x.%j.out --open-mode=append
#SBATCH --nodes=16 --ntasks-per-node=8 --gpus-per-node=8 --exclusive --mem=0
#SBATCH --time=24:00:00 --signal=B:USR1@300 --requeue
#
# Trains one model on 16 nodes of 8 GPUs, one rank per GPU. From a clone, build tree or install tree:
#   sbatch jobs/train_16node.sh
#   sbatch --nodes=2 --ntasks-per-node=2 --gpus-per-node=0 jobs/train_16node.sh ARGOSY_CONFIG=configs/tiny.json
# Arguments after the script go to apps/train, such as --set seed=2.
# Needs:   apps/train (scripts/setup and a build), and the token shards that the configuration names.
# Stops:   saves and stops 300 s before its time limit and on preemption with a grace time. On `scancel` and other preemption,
#          it saves if Slurm leaves it the time (KillWait); otherwise the last checkpoint counts.
# Requeues itself after such a save, and at most twice after a lost rank or device without progress; in no other case.
# Leaves:  checkpoints and exit.<job>.<restart> in the run directory, its log in train16.<job>.out.
set -uo pipefail
root=${ARGOSY_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

export ARGOSY_STOP_NOTICE_S=${ARGOSY_STOP_NOTICE_S:-300} # the number after @ in --signal: change both together
argosy_start mistral_7b "$@"
argosy_tool train "$config" "$@"
