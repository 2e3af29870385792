#!/bin/bash
#
# Shows the state of a chain: the job of each stage, its state and why it waits; step, ETA and last validation of training; disk.
#   jobs/status.sh configs/mt_base.json
# Needs:   squeue, apps/status, and apps/train to find the run directory; the argument may also be that directory. Without
#          Slurm, use apps/status, which shows everything except the queue.
# Stops:   at once; changes nothing.
# Leaves:  nothing; its last line is for programs.
set -uo pipefail
root=${ARGOSY_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
if [[ ${1:-} == ARGOSY_ROOT=* ]]; then root=${1#*=}; fi
SLURM_JOB_NAME=status
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

case ${1:-} in
  -h | --help)
    echo "usage: jobs/status.sh CONFIG|RUN_DIRECTORY"
    sed -n '3,8s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  '') argosy_fail 2 "a configuration or a run directory is required" ;;
esac
if [ -d "$1" ]; then run=$1; else argosy_run_dir "$1"; fi
[ -x "$root/apps/status" ] || argosy_fail 2 "$root/apps/status does not exist; build it, or set ARGOSY_ROOT"
if [[ $run == -* ]]; then run=./$run; fi
[ -d "$run" ] || argosy_fail 3 "nothing has been submitted: the run directory $run does not exist"

argosy_read_chain "$run"
# The result line comes last, after the lines for people. Code 4: a file is damaged; the rest is shown.
said=$("$root/apps/status" "$run" "${queue[@]}" 2>&1)
rc=$?
if ((rc == 0 || rc == 4)); then
  printf '%s\n' "$said" || rc=4
else
  printf '%s\n' "$said" >&2
fi
exit "$rc"
