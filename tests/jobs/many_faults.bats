#!/usr/bin/env bats
# The long version of faults.bats: twenty faults, drawn at random, in the life of one run. ARGOSY_FAULT_SEED chooses others.

# shellcheck disable=SC2034,SC2154 # cluster.bash reads or assigns them
bats_require_minimum_version 1.5.0
load cluster

setup_file() {
  echo 'PartitionName=patient Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=REQUEUE GraceTime=30' >"$BATS_FILE_TMPDIR/more"
  start_cluster --nodes 4 --conf "$BATS_FILE_TMPDIR/more"
}
teardown_file() { "$SANDBOX" down; }
setup() { on_cluster; }
teardown() { mend_cluster; }

length=(--set schedule.length=1200 --set checkpoint.interval=5 --set comm.timeout_s=10)

newest() { sed -n 's/.*saved .*checkpoints\/0*\([0-9]*\) .*/\1/p' train16."$job".out | tail -n 1; }
progressed() { [ "$(newest)" -gt "$before" ]; }
left() { ended || pending; }

@test "twenty faults: the bits of an undisturbed run" {
  train 3 whole "${length[@]}"
  within 400 ended
  RANDOM=${ARGOSY_FAULT_SEED:-1}
  with=(--partition=patient)
  train 3 battered "${length[@]}"
  for fault in $(seq 20); do
    before=$(newest)
    before=${before:-0}
    within 100 progressed
    sleep "0.$((RANDOM % 10))"
    node=$((RANDOM % 3 + 1)) kind=$((RANDOM % 7))
    echo "fault $fault: kind $kind, node $node, behind step $(newest)"
    case $kind in
      0) scancel --batch --signal=USR1 "$job" ;;
      1) sbatch --partition=high --nodes=4 --exclusive --output=/dev/null --wrap true ;;
      2) scontrol update NodeName="node$node" State=DOWN Reason=test ;;
      3) "$SANDBOX" kill-node "$node" && scontrol update NodeName="node$node" State=DOWN Reason=test ;;
      4) "$SANDBOX" exec kill -KILL "$(rank $((RANDOM % 3)))" ;;
      5) "$SANDBOX" exec kill -STOP "$(rank $((RANDOM % 3)))" ;;
      6) scontrol requeue "$job" ;;
    esac
    within 100 left
    if ((kind == 3)); then "$SANDBOX" start-node "$node"; fi
    sleep 1
    for number in 1 2 3 4; do
      if [ -n "$(sinfo -h -n "node$number" -t down,drain,fail -o %D)" ]; then scontrol update NodeName="node$number" State=RESUME; fi
    done
    if pending; then start_again; else train 3 battered "${length[@]}"; fi
  done
  within 300 ended
  same_bits
}
