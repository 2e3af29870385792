#!/usr/bin/env bats
# apps/soup --validate as people type it, on checkpoints of a short training whose loss still falls from one to the next: their
# mean is worse than the last one.

bats_require_minimum_version 1.5.0

load ../verses.sh

setup_file() {
  cd "$BATS_FILE_TMPDIR" && like_a_clone
  on 2 apps/preprocess configs/tiny.json
  on 2 apps/train configs/tiny.json --set schedule.length=60 --set checkpoint.interval=20 --set validation.interval=20 \
    --set 'validation.metrics=["loss"]'
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

soup() { # soup RANKS WORD…: messages into `said`, the code into `code`
  ARGOSY_EXIT_FILE=$PWD/exit on "$1" apps/soup "${@:2}" runs/tiny/train/checkpoints/* >said 2>&1 || true
  code=$(cut -d' ' -f1 exit)
  cat said
}

@test "a checkpoint has the loss that the trainer saw, on any number of ranks" {
  for ranks in 1 3; do
    soup $ranks --validate configs/tiny.json --out "none$ranks"
    python3 - <<'PYTHON'
import json, re
said = open("said").read()
steps = re.findall(r"checkpoints/(\d+): validation loss ([\d.]+)", said)
assert len(steps) >= 2, said
for step, loss in steps:
    stored = json.load(open(f"runs/tiny/train/checkpoints/{step}/MANIFEST.json"))["metrics"]["valid.en"]["loss"]
    assert abs(float(loss) - stored) < 1e-4 * stored, (step, loss, stored)
PYTHON
  done
}

@test "a soup worse than its best checkpoint is not committed, exit code 6, unless allowed" {
  soup 2 --validate configs/tiny.json --out worse
  [ "$code" = 6 ]
  grep -q "[0-9.]* more than its best checkpoint .*--allow-worse" said
  [ ! -e worse ]
  run ! compgen -G ".tmp-*"
  soup 2 --validate configs/tiny.json --out worse --allow-worse
  [ "$code" = 0 ]
  grep -q '"best_member_loss":' said
  [ -e worse/MANIFEST.json ]
  [ ! -e .worse.journal ]
}

@test "a greedy soup is the uniform mean of its members, bit for bit" {
  soup 2 --recipe greedy --validate configs/tiny.json --out greedy
  [ "$code" = 0 ]
  grep -q "took runs/tiny/train/checkpoints/" said
  python3 - <<'PYTHON'
import json
soup = json.load(open("greedy/MANIFEST.json"))["soup"]
assert soup["recipe"] == "greedy" and len(soup["decisions"]) >= 2, soup
assert soup["validation"]["loss"] <= soup["validation"]["best_member_loss"], soup
open("members", "w").write("\n".join(member["path"] for member in soup["inputs"]))
PYTHON
  mapfile -t members <members
  [ "${#members[@]}" -eq 1 ] || {
    on 1 apps/soup "${members[@]}" --out uniform
    cmp greedy/shard-00000-of-00001.h5 uniform/shard-00000-of-00001.h5
  }
  soup 1 --recipe greedy --min-delta 1000 --validate configs/tiny.json --out strict
  grep -q '"inputs":1,' said
}

@test "a bf16 soup is smaller, sound, and translates and exports like any other" {
  on 2 apps/soup runs/tiny/train/checkpoints/* --out wide
  on 2 apps/soup runs/tiny/train/checkpoints/* --dtype bf16 --out narrow
  python3 - <<'PYTHON'
import json
wide, narrow = (json.load(open(f"{name}/MANIFEST.json")) for name in ("wide", "narrow"))
assert narrow["shards"][0]["bytes"] < wide["shards"][0]["bytes"], narrow["shards"]
assert {p["dtype"] for p in narrow["params"]} == {"bf16"}, narrow["params"]
assert narrow["min_reader"]["minor"] == 1 and wide["min_reader"]["minor"] == 0
PYTHON
  on 2 apps/soup --check narrow
  head -n 3 runs/tiny/text/test.* | grep -v '^==>' | head -n 3 >lines
  for soup in wide narrow; do
    apps/translate "$soup" --beam 1 <lines >"$soup.text" 2>/dev/null
    [ "$(wc -l <"$soup.text")" = "$(wc -l <lines)" ]
    apps/export "$soup" --format ct2 --out "$soup.ct2"
    [ -s "$soup.ct2/model.bin" ]
  done
}

resume() { # resume RANKS SOUP: trains on from it in a new run; as `soup`
  rm -rf again
  ARGOSY_EXIT_FILE=$PWD/exit on "$1" apps/train configs/tiny.json --set run_dir=again --set schedule.length=64 --resume "$2" >said 2>&1 || true
  code=$(cut -d' ' -f1 exit)
  cat said
}

@test "training goes on from a soup that kept moments, on any number of ranks" {
  local ranks=3
  for moments in zero avg; do
    on 2 apps/soup --optimizer $moments runs/tiny/train/checkpoints/* --out kept-$moments
    on 1 apps/soup --check kept-$moments
    resume $ranks kept-$moments
    [ "$code" = 0 ]
    grep -q "resumed from kept-$moments" said
    grep -q '"step":64,' said
    ranks=1
  done
  on 1 apps/soup runs/tiny/train/checkpoints/* --out dropped
  resume 1 dropped
  [ "$code" != 0 ]
}

@test "the configuration's keys can be set, and decide the loss as the text does, whatever a journal holds of others" {
  soup 2 --validate configs/tiny.json --allow-worse --out all
  soup 2 --validate configs/tiny.json --out one
  [ "$code" = 6 ]
  soup 2 --validate configs/tiny.json --allow-worse --out one --set validation.steps=1 --set batch.micro_size=400
  loss_of() { sed -nE 's/.*"validation":\{"loss":([^,]*),.*/\1/p' "$1/MANIFEST.json"; }
  [ "$(loss_of all)" != "$(loss_of one)" ]
  local sets='validation.sets=[{"source":"text.en","target":"text.es"}]'
  first_verses 20 text
  soup 2 --validate configs/tiny.json --set "$sets" --out text
  [ "$code" = 6 ]
  first_verses 30 text
  for out in text fresh; do soup 2 --validate configs/tiny.json --set "$sets" --allow-worse --out $out; done
  [ "$(loss_of text)" = "$(loss_of fresh)" ]
}

@test "a set that decides nothing is reported, and resampling decides in place of a difference" {
  first_verses 20 held
  local decides='{"source":"runs/tiny/text/valid.en","target":"runs/tiny/text/valid.es"}' held='{"source":"held.en","target":"held.es"}'
  validated() { soup 2 --validate configs/tiny.json --set "validation.sets=[$1]" "${@:2}"; }
  validated "$decides,$held" --recipe greedy --bootstrap 0.9 --report held.en --out choice
  [ "$code" = 0 ]
  grep -q "on the set given to --report, the soup has the loss" said
  validated "$decides,$held" --out reported
  [ "$code" = 6 ] # and its journal, in which both decided, does not count for what follows
  validated "$decides,$held" --report held.en --allow-worse --out reported
  validated "$decides" --allow-worse --out decided
  validated "$held" --allow-worse --out held
  python3 - <<'PYTHON'
import json
reported, decided, held = (json.load(open(f"{name}/MANIFEST.json"))["soup"] for name in ("reported", "decided", "held"))
assert reported["validation"] == decided["validation"], (reported, decided)
assert reported["report"]["loss"] == held["validation"]["loss"] != decided["validation"]["loss"], (reported, held)
PYTHON
  validated "$decides,$held" --report test.en --out not
  [ "$code" = 2 ]
  grep -q "expected the validation set test.en, got valid.en, held.en" said
  soup 1 --validate configs/tiny.json --report valid.en --out not
  [ "$code" = 2 ]
}

@test "greedy without validation sets is refused" {
  soup 1 --recipe greedy --out nothing
  [ "$code" = 2 ]
  soup 1 --recipe greedy --validate configs/tiny.json --set 'validation.sets=[]' --out nothing
  [ "$code" = 2 ]
  soup 1 --allow-worse --out nothing
  [ "$code" = 2 ]
  [ ! -e nothing ]
}
