#!/usr/bin/env bats
# The measuring scripts refuse what they cannot do, emulated nodes are apart and end with their script, and the verdicts of
# bench/wire can be bad. What the scripts measure is not tested here. The scripts that compare with other programs run without them.

setup() {
  bench=$(cd "$BATS_TEST_DIRNAME/../../../scripts/bench" && pwd)
  unset UCX_TLS
  marian='(workload.MODELS["marian"]["model"].update(width=32, ff=48, heads=4, vocab_size=64), workload.MODELS["marian"])[1]'
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
import importlib.machinery, importlib.util, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
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
  refused "--repeats must be at least 1" "$bench/train" --repeats 0
  refused "--curve-steps must be at least 0" "$bench/train" --curve-steps -1
  refused "the 8 rows of llama cannot be divided" "$bench/train" --cores 3
  refused "there is no folder /nowhere" "$bench/train" --out /nowhere/benchmarks.json
  refused "it has no MANIFEST.json" "$bench/translate" --model "$bench" --input "$bench/train" --reference "$bench/train"
  refused "--steps must be at least 1" "$bench/growth" --steps 0
  refused "--steps must be at least 2" "$bench/loader" --steps 1
  refused "--gigabytes must be at least 0.02" "$bench/corpus" --folder x --gigabytes 0.01
  refused "--ranks must be at least 2" "$bench/corpus" --folder x --ranks 1
  refused "there is no task verses; there are help, cmudict, kjv" "$bench/quality" verses
  refused "--seconds must be at least 10" "$bench/quality" --seconds 9
  refused "--cores must be at least 1" "$bench/quality" --cores 0
  refused "--cores must be at least 1" "$bench/modular" --cores 0
  refused "must be at least 10" "$bench/modular" --of-all 5
  refused "--layers and --rounds must be at least 1" "$bench/export" --layers 0
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

@test "export compares each export with the dd of the same round" {
  rounds='[{"export_s": 2, "dd_s": 1, "peak_mib": 90}, {"export_s": 4, "dd_s": 4, "peak_mib": 70}, {"export_s": 5, "dd_s": 4, "peak_mib": 80}]'
  [ "$(of export "'{export_s} {dd_s} {peak_mib} {ratio} {ratio_least} {ratio_most}'.format(**row_of($rounds))")" = "4 4 80 0.8 0.5 1.0" ]
}

@test "scale extends what it has counted on few ranks, and notices what does not fit" {
  [ "$(of scale 'extended([(2, 4), (3, 9), (4, 16)], 10)')" = 100.0 ]
  [ "$(of scale 'extended([(2, 5), (3, 7), (4, 9)], 16384)')" = 32769.0 ]
  [ "$(of scale 'is_close(1000, 1015), is_close(1000, 1050)')" = "(True, False)" ]
}

# small SCRIPT OPTION…: runs it on models of a few thousand parameters, without a peer and without building first
small() {
  ARGOSY_DEPS=/nowhere python3 -B - "$bench" "$@" <<'PY'
import importlib.machinery, importlib.util, os, sys
folder, name = sys.argv[1:3]
sys.path.insert(0, folder)
loader = importlib.machinery.SourceFileLoader(name, f"{folder}/{name}")
script = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
loader.exec_module(script)
import turns, workload
turns.build = lambda *_: None
for work in workload.MODELS.values():
    work["model"].update(width=32, ff=48, heads=4, vocab_size=64)
script.STARTS = 1
script.BASE = {"width": 64, "layers": 1, "length": 16, "vocab": 64, "ranks": 1}
script.AXES = {"layers": (1, 2), "ranks": (1, 2)}
sys.argv = [name, "--build", os.environ["ARGOSY_BUILD_DIR"], *sys.argv[3:]]
sys.exit(script.main())
PY
}

@test "train measures every variant of both models, with the floor, and says that there is no peer" {
  cd "$BATS_TEST_TMPDIR"
  small train --steps 2 --repeats 1 --out figures.json >table
  grep -q "^no peer: /nowhere/judges/bin/python cannot import torch" table
  python3 - <<'PY'
import json
result = json.load(open("figures.json"))
assert json.loads(open("table").read().splitlines()[-1])["rows"] == result["rows"]
assert result["status"] == "ok" and not result["peer"] and result["curves"] == []
keys = {(row["model"], row["precision"], row["variant"]) for row in result["rows"]}
assert keys == {(model, precision, variant) for model in ("llama", "marian") for precision in ("fp32", "bf16")
                for variant in ("2 ranks x 1 thread", "1 rank x 2 threads")}, keys
for row in result["rows"]:
    assert row["ratio_to_best_peer"] is None and row["peak_rss_mib"] > 10 and row["tokens_per_s"] > 0, row
    assert row["floor_ms"] <= row["pass_ms"] and row["step_over_floor"] > 0, row
PY
}

@test "translate measures greedy and beam search of a checkpoint without a peer" {
  cd "$BATS_TEST_TMPDIR"
  of train "workload.Argosy($marian, Path('$ARGOSY_BUILD_DIR'), Path('small')).train('fp32', 1, 1, 2)" >/dev/null
  small translate --model small/run/export/000000002 --input small/text.en --reference small/text.fr --repeats 1 --out figures.json >table
  python3 - <<'PY'
import json
rows = json.load(open("figures.json"))["rows"]
measured = [(row["beam"], row["precision"]) for row in rows if "lines_per_s" in row]
assert measured == [(beam, precision) for beam in (1, 4) for precision in ("fp32", "int8") for _ in range(2)], measured
PY
}

@test "quality trains for the seconds, translates, scores, draws, and keeps what it has measured" {
  cd "$BATS_TEST_TMPDIR"
  tiny=(--set model.width=32 --set model.ff=48)
  small quality --out figures --offline --seconds 10 "${tiny[@]}" --set batch.sequence_length=32 --set model.max_positions=32 kjv
  small quality --out figures --offline --seconds 10 "${tiny[@]}" cmudict
  python3 - <<'PY'
import json, math, pathlib
of = {path.parts[1]: json.loads(path.read_text()) for path in pathlib.Path("figures").glob("*/10s/argosy/result.json")}
assert set(of) == {"kjv", "cmudict"} and all(row["steps"] > 20 and 2 < row["train_s"] < 60 for row in of.values()), of
assert 1 < of["kjv"]["bits_per_byte"] < 6 and of["kjv"]["soup_bits_per_byte"] <= of["kjv"]["bits_per_byte"] + .01, of
assert of["kjv"]["bits_per_byte"] < of["kjv"]["valid_loss"] / math.log(2) / 1.5, of  # a token is more than a byte
assert 0 <= of["cmudict"]["exact"] <= 1 and of["cmudict"]["valid_loss"] < math.log(52), of
assert "kjv" not in json.load(open("figures/quality.json"))["rows"][0]["task"]
assert all((pathlib.Path("figures") / task / "report.html").stat().st_size > 10000 for task in of)
PY
  before=$(stat -c %Y%i figures/cmudict/10s/argosy/result.json)
  small quality --out figures --offline --seconds 10 "${tiny[@]}" cmudict | grep -q "10  argosy"
  [ "$(stat -c %Y%i figures/cmudict/10s/argosy/result.json)" = "$before" ]
}

@test "quality gives the peer the recipe of the configuration" {
  recipe=$("$ARGOSY_BUILD_DIR/apps/train" "$bench/../../configs/kjv.json" --print-config)
  words=$(of quality "(task := Task.__new__(Task), vars(task).update(recipe=json.loads('''$recipe'''), languages=['en']), *task.same(10))[2:]")
  [[ $words == *"'--length', 1024, '--rows', 4, '--dropout', 0.2, '--optimizer', 'muon', '--ema', 0.999"* ]]
}

@test "micro_step multiplies every matrix of the configured model, and refuses what does not fit it" {
  cd "$BATS_TEST_TMPDIR"
  of train "workload.Argosy($marian, Path('$ARGOSY_BUILD_DIR'), Path('small'), with_data=False)" >/dev/null
  micro_step=$ARGOSY_BUILD_DIR/tests/bench/micro_step
  run "$micro_step" small/config.json 3 5 4 1 1
  [ "$status" -eq 0 ]
  [[ $output == *'"products":135,'* ]] # 3 for each of 4 matrices of an encoder layer, 7 of a decoder layer, and the head
  refused "SOURCE is 0 for a language model" "$micro_step" small/config.json 3 0 4
  refused "ROWS must be 1 or more, got x" "$micro_step" small/config.json x 5 4
  refused "usage: micro_step" "$micro_step" small/config.json
}

@test "growth divides time by work, shows a rise, and plots it" {
  cd "$BATS_TEST_TMPDIR"
  small growth --steps 1 --axes layers ranks >table
  python3 - <<'PY'
import json, xml.etree.ElementTree as tree
rows = json.loads(open("table").read().splitlines()[-1])["rows"]
assert [(row["axis"], row["value"]) for row in rows] == [("layers", 1), ("layers", 2), ("ranks", 1), ("ranks", 2)]
assert rows[1]["gflop"] > rows[0]["gflop"] and rows[2]["gflop"] == rows[3]["gflop"]
assert len(tree.parse("growth.svg").findall("{*}polyline")) == 4
PY
  rows='[{"ms_per_gflop": 4.0}, {"ms_per_gflop": 2.0}, {"ms_per_gflop": 3.0}]'
  [ "$(of growth "[add_rises(r := $rows), [row['rise'] for row in r]][1]")" = "[1.0, 0.5, 1.5]" ]
}

@test "a larger text is compared with a small one, on one rank and on several" {
  small corpus --folder "$BATS_TEST_TMPDIR/texts" --gigabytes 0.02 --ranks 2 --steps 150 >"$BATS_TEST_TMPDIR/out"
  tail -n 1 "$BATS_TEST_TMPDIR/out" | python3 -c '
import json, sys
said = json.load(sys.stdin)
assert [(row["text"], row["ranks"]) for row in said["rows"]] == [("small", 1), ("small", 2), ("large", 1), ("large", 2)], said
assert all(0 < row["first_step_s"] < 60 and 20 < row["least_mib"] <= row["mib"] <= row["most_mib"] and row["file_mib"] > 1 for row in said["rows"]), said
assert all(two["mib"] > one["mib"] for one, two in (said["rows"][:2], said["rows"][2:])), said
assert said["documents"] > 200000 and [row["ranks"] for row in said["data"]] == [1, 2], said'
}

@test "the loader is compared with training, with all transforms too" {
  "$bench/loader" --build "$ARGOSY_BUILD_DIR" --seconds 0.2 --steps 2 >"$BATS_TEST_TMPDIR/out"
  tail -n 1 "$BATS_TEST_TMPDIR/out" | python3 -c '
import json, sys
found = json.load(sys.stdin)
assert all(found[name] > 0 for name in ("training", "prepared", "online", "online with transforms", "online_to_training"))'
}

@test "a comparison takes the fastest variant of the peer, and losses that differ or are NaN are noticed" {
  rows='[{"side": "argosy", "p": 1, "s": 6.0}, {"side": "x", "p": 1, "s": 3.0}, {"side": "x", "p": 1, "s": 4.0}, {"side": "x", "p": 2, "s": 9.0}]'
  [ "$(of train "[turns.add_ratios(r := $rows, 's', ('p',)), r[0]['ratio_to_best_peer']][1]")" = 1.5 ]
  [ "$(of train 'turns.speed([[10, 20, 30], [20, 20, 20], [50, 40, 30]], 100)')" = "{'ms': 20, 'median': 5000.0, 'low': 2500.0, 'high': 5000.0}" ]
  [ "$(of train 'largest_difference([2.0, 1.0], [2.0, 1.25])')" = 0.2 ]
  [ "$(of train 'largest_difference([2.0, float("nan")], [2.0, 1.0]), largest_difference([1.0], [1.0, 1.0])')" = "(inf, inf)" ]
}

@test "batching reads from token shards the lengths whose sums their header has" {
  load ../verses.sh
  cd "$BATS_TEST_TMPDIR"
  first_verses 300 verses
  cat >mt.json <<'JSON'
{"run_dir": "run",
 "data": {"tokenizer": "run/spm.model", "shards": "run/shards", "tokenizer_training": {"vocab_size": 400},
          "corpora": [{"name": "verses", "languages": ["en", "es"], "source": "verses.en", "target": "verses.es"}]}}
JSON
  "${ARGOSY_BUILD_DIR:?}/apps/preprocess" mt.json
  file=$(echo run/shards/*.tokens)
  sums=$(of batching "tuple(map(sum, zip(*lengths_of(Path('$file')))))")
  [ "$sums" = "$(python3 -c 'import struct, sys; print(struct.unpack_from("<QQ", open(sys.argv[1], "rb").read(120), 104))' "$file")" ]
  "$bench/batching" --build "$ARGOSY_BUILD_DIR" --shards run/shards --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["run/shards"]["pairs"] == 300'
}
