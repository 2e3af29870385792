#!/usr/bin/env bats
# The measuring scripts refuse what they cannot do, emulated nodes are apart and end with their script, and the verdicts of
# bench/wire can be bad. What the scripts measure is not tested here.

setup() {
  bench=$(cd "$BATS_TEST_DIRNAME/../../../scripts/bench" && pwd)
  unset UCX_TLS
}

refused() { # refused TEXT COMMAND…: ends with code 2 and says so
  local text=$1
  shift
  run "$@"
  [ "$status" -eq 2 ]
  [[ $output == *"$text"* ]]
}

needs_name_spaces() {
  PATH=$PATH:/usr/sbin command -v tc >/dev/null || skip "no iproute2"
  local as_root=()
  if [ "$(id -u)" != 0 ]; then as_root=(--user --map-root-user); fi
  unshare "${as_root[@]}" --net --mount --pid --fork true || skip "this machine gives no network name spaces"
}

# of SCRIPT EXPRESSION: its value, with the script's functions at hand
of() {
  python3 -B - "$bench/$1" "$2" <<'PY'
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("script", sys.argv[1])
script = importlib.util.module_from_spec(importlib.util.spec_from_loader("script", loader))
loader.exec_module(script)
print(eval(sys.argv[2], vars(script)))
PY
}

@test "layouts, rates and times that nothing can be made of are refused" {
  refused "layout '0+2'" "$bench/nodes" 0+2 -- true
  refused "layout ''" "$bench/nodes" -- true
  refused "the same number of ranks" "$bench/nodes" 2+3:cyclic -- true
  refused "--rate fast" "$bench/nodes" 1+1 --rate fast -- true
  refused "--rate needs a value" "$bench/nodes" 1+1 --rate
  refused "--timeout soon" "$bench/nodes" 1+1 --timeout soon -- true
  refused "no program" "$bench/nodes" 1+1
  refused "unknown option --fast" "$bench/nodes" --fast 1+1 -- true
  refused "--rate fast" "$bench/wire" --times --rate fast
  refused "two nodes" "$bench/wire" --nodes 4
  refused "--rate needs --nodes" "$bench/schemes" --rate 1mbit
  refused "more than 3" "$bench/schemes" --steps 3
  refused "must be at least 1" "$bench/checkpoint" --rounds -1
  refused "multiples of 8" "$bench/scale" --ranks 12
}

@test "nodes have networks, shared memory and names of their own, as many ranks as said, and the rate asked for" {
  needs_name_spaces
  # shellcheck disable=SC2016 # expands on the nodes
  "$bench/nodes" 2+1 --rate 10mbit -- sh -c 'for of in net ipc; do readlink /proc/self/ns/$of; done; hostname; tc qdisc show dev eth0' >"$BATS_TEST_TMPDIR/out"
  [ "$(grep -c '^net:' "$BATS_TEST_TMPDIR/out")" -eq 3 ]
  [ "$(grep '^net:' "$BATS_TEST_TMPDIR/out" | sort -u | wc -l)" -eq 2 ]
  [ "$(grep '^ipc:' "$BATS_TEST_TMPDIR/out" | sort -u | wc -l)" -eq 2 ]
  [ "$(grep -c '^n1$' "$BATS_TEST_TMPDIR/out")" -eq 2 ]
  [ "$(grep -c '^n2$' "$BATS_TEST_TMPDIR/out")" -eq 1 ]
  [ "$(grep -c 'tbf.*rate 10Mbit' "$BATS_TEST_TMPDIR/out")" -eq 3 ]
  # shellcheck disable=SC2016 # expands on the nodes
  run "$bench/nodes" 2+2:cyclic -- sh -c 'echo "$PMI_RANK on $(hostname)"'
  [[ $output == *"0 on n1"* && $output == *"1 on n2"* && $output == *"2 on n1"* && $output == *"3 on n2"* ]]
}

@test "a program's code is passed on, one that takes too long is killed, and a killed script leaves nothing behind" {
  needs_name_spaces
  run "$bench/nodes" 1 -- sh -c 'exit 7'
  [ "$status" -eq 7 ]
  run "$bench/nodes" 1+1 --timeout 1 -- sleep 86391
  [ "$status" -eq 5 ]
  [[ $output == *"it ran longer than --timeout (1 s)"* ]]
  for signal in TERM KILL; do
    "$bench/nodes" 1+1 -- sleep 86392 3>&- &
    script=$!
    for ((i = 0; i < 100; i++)); do
      [ "$(pgrep -fc '^sleep 86392')" -ne 2 ] || break
      sleep 0.1
    done
    [ "$(pgrep -fc '^sleep 86392')" -eq 2 ]
    kill -$signal "$script"
    wait "$script" || [ $? -gt 128 ]
    for ((i = 0; i < 100; i++)); do
      pgrep -f '^sleep 8639[12]' >/dev/null || break
      sleep 0.1
    done
    run pgrep -f '^sleep 8639[12]'
    [ -z "$output" ]
  done
  [ ! -e /run/netns/n1 ]
}

@test "a sum that sends more, sends nothing over the network, or counts anything but the bound fails" {
  [ "$(of wire 'holds_bound({"wire": [1.34, 1.39], "counted": [4 / 3, 4 / 3]}, 4 / 3)')" = True ]
  [ "$(of wire 'holds_bound({"wire": [1.34, 1.41], "counted": [4 / 3, 4 / 3]}, 4 / 3)')" = False ]
  [ "$(of wire 'holds_bound({"wire": [1.34, 0.01], "counted": [4 / 3, 4 / 3]}, 4 / 3)')" = False ]
  [ "$(of wire 'holds_bound({"wire": [1.34, 1.34], "counted": [4 / 3, 1.33]}, 4 / 3)')" = False ]
}

@test "schemes compares every choice with the first, plain one" {
  names() { of schemes "[choice.name() for choice in choices_of(options_of('$*'.split()))]"; }
  [ "$(names | grep -o "'" | wc -l)" -eq 32 ]
  [[ $(names) == "['stage_1', 'stage_1 block', 'stage_1 breadth', 'stage_1 breadth block', 'stage_2', "* ]]
  [ "$(names --quick --scheme stage_3)" = "['stage_3', 'stage_3 block', 'stage_3 breadth']" ]
  [ "$(names --nodes 1+1 --scheme hybrid --scheme stage_1)" = "['stage_1', 'stage_1 flat', 'hybrid']" ]
}

@test "checkpoint compares each way with the plain one of the same round" {
  result='{"bytes": 2000000000, "plain": {"seconds": [1, 4, 2], "cpu_seconds": [1, 1, 1]}, "save": {"seconds": [2, 5, 2], "cpu_seconds": [1, 3, 2]}}'
  row() { of checkpoint "'{ratio} {ratio_smallest} {ratio_largest} {cpu_ratio} {gb_per_s} {cpu_s_per_gb}'.format(**row_of($result, '$1', 'plain'))"; }
  [ "$(row save)" = "0.8 0.5 1.0 2.0 1.0 1.0" ]
  [ "$(row plain)" = "1.0 1.0 1.0 1.0 1.0 0.5" ]
  [ "$(of checkpoint 'stall_share({"save": {"seconds": [4, 1, 1]}, "held_up_seconds": [0.25, 0.125, 0.5]})')" = 0.25 ]
}

@test "scale extends what it has counted on few ranks, and notices what does not fit" {
  [ "$(of scale 'extended([(2, 4), (3, 9), (4, 16)], 10)')" = 100.0 ]
  [ "$(of scale 'extended([(2, 5), (3, 7), (4, 9)], 16384)')" = 32769.0 ]
  [ "$(of scale 'is_close(1000, 1015), is_close(1000, 1050)')" = "(True, False)" ]
}
