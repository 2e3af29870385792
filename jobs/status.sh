#!/bin/bash
#
# Tells how far a chain is: each stage's job, state and why it waits; step, ETA and last validation of training; disk.
#   jobs/status.sh configs/mt.json
# Needs:   apps/train, to find the run directory, or that directory itself instead of a configuration.
# Stops:   at once; changes nothing.
# Leaves:  nothing; the last line is for programs.
set -uo pipefail
root=${ARGOSY_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
SLURM_JOB_NAME=status
unset ARGOSY_EXIT_FILE
# shellcheck source=jobs/lib.sh
. "$root/jobs/lib.sh" || exit 2

case ${1:-} in
  -h | --help)
    echo "usage: jobs/status.sh CONFIG|RUN_DIRECTORY"
    sed -n '3,7s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  '') argosy_fail 2 "wanted a configuration or a run directory, got nothing" ;;
esac
if [ -d "$1" ]; then run=$1; else argosy_run_dir "$1"; fi
[ -e "$run/chain.json" ] || [ -e "$run/status.json" ] || argosy_fail 3 "nothing has been submitted or trained in $run"

argosy_read_chain "$run"
argosy_print_chain

training='' validation=''
if [ -s "$run/status.json" ]; then
  training=$(cat "$run/status.json")
  value() { argosy_json_value "$1" <<<"$training"; }
  age=$(($(date +%s) - $(date -d "$(value time)" +%s)))
  echo "training $(value state) at step $(value step), $(value fraction_done | awk '{ printf "%.1f", 100 * $1 }') % done, heard of $age s ago$(value reason | sed 's/^/: /')"
  eta=$(value eta_s | awk '{ printf "%d", $1 }') # numbers may have exponents
  if [ -n "$eta" ]; then echo "ETA $(date -d "@$(($(date +%s) + eta - age))" '+%F %T')"; fi
fi
validation=$(grep '"validation"' "$run/metrics.jsonl" 2>/dev/null | tail -n 1)
if [ -n "$validation" ]; then
  figures=$(sed -n 's/.*"figures": *{\([^}]*\)}.*/\1/p' <<<"$validation" | tr -d '" ' | tr , '\n')
  echo "validation of step $(argosy_json_value step <<<"$validation"), $(argosy_json_value validation <<<"$validation"): $(awk -F: '{ printf "%s%s %.4f", sep, $1, $2; sep = ", " }' <<<"$figures")"
fi
used=$(du -sk "$run" | cut -f1) free=$(df -Pk "$run" | awk 'NR == 2 { print $4 }')
echo "disk $((used / 1024)) MiB in $run, $((free / 1024)) MiB free"
echo "result {\"tool\":\"status\",\"status\":\"ok\",\"run_dir\":\"$run\",\"disk_kib\":$used,\"free_kib\":$free,\"training\":${training:-null},\"validation\":${validation:-null},\"stages\":$(argosy_chain_json)}"
