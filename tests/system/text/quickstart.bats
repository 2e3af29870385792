#!/usr/bin/env bats
# scripts/quickstart with stand-ins for set-up, build, launcher and tools: what it runs, in which order, and what it does
# again after an interruption. The real chain is run by hand and timed; it takes minutes.

bats_require_minimum_version 1.5.0

setup() {
  unset ARGOSY_MPIEXEC
  source_dir=$(cd "$BATS_TEST_DIRNAME/../../.." && pwd)
  tree=$BATS_TEST_TMPDIR/tree
  mkdir -p "$tree/scripts" "$tree/apps" "$tree/bin" "$tree/tests/support"
  cp -r "$source_dir/scripts/"{quickstart,quickstart.d,report,report.d,data} "$tree/scripts/"
  cp -r "$source_dir/configs" "$tree/"
  cp -r "$source_dir/tests/support/text" "$tree/tests/support/"
  cd "$tree" || return
  stand_in scripts/setup 'echo "setup: ready"'
  stand_in bin/cmake ''
  cp "$source_dir/scripts/launcher" scripts/
  # shellcheck disable=SC2016 # expanded by the stand-in
  stand_in bin/mpiexec 'if [ "$1" = --version ]; then echo HYDRA && exit; fi; shift 2; "$@" || true' # loses the exit code, as launchers do
  for tool in count preprocess export; do stand_in "apps/$tool" ''; done
  stand_in apps/train 'mkdir -p runs/quickstart/train/{checkpoints/{100,200,1000,300,400},export/1000}
echo "{\"step\": 1, \"nll\": 2.5}" >runs/quickstart/train/metrics.jsonl'
  # shellcheck disable=SC2016 # expanded by the stand-in
  stand_in apps/soup 'for last; do :; done; mkdir "$last"'
  # shellcheck disable=SC2016 # expanded by the stand-in
  stand_in apps/translate 'while [ "$1" != --input ]; do shift; done; [ "$3" = --output ]; tr a-z A-Z <"$2" >"$4"'
  export PATH=$tree/bin:$PATH
}

stand_in() { # stand_in FILE BODY: notes its call, prints the result line, leaves the exit file
  cat >"$1" <<TEXT
#!/usr/bin/env bash
set -e
echo "\${0##*/} \$*" >>$tree/calls
$2
[ "\${0%/*}" != apps ] || echo 0 0 >"\$ARGOSY_EXIT_FILE"
echo 'result {"tool":"'\${0##*/}'","status":"ok","bleu":12.34,"chrf":56.7,"inputs":2,"loss":1.5,"losses":[{"path":"a","loss":1.75},{"path":"b","loss":1.625},{"path":"c","loss":1.6}]}' >&2
TEXT
  chmod +x "$1"
}

@test "runs the chain in order and leaves scores, seconds and a table" {
  run scripts/quickstart --offline-text
  [ "$status" -eq 0 ]
  [ "$(grep -cE '^(count|preprocess|train|soup|export|translate) ' calls)" -eq 6 ]
  [ "$(sed -nE 's/^(count|preprocess|train|soup|export|translate) .*/\1/p' calls | paste -sd ' ')" = "count preprocess train soup export translate" ]
  [[ "$output" == *'$ mpiexec -n 2 apps/train configs/quickstart.json '* ]]
  [[ "$output" == *"BLEU 12.3, chrF 56.7 on 85 held-out sentences (verses, en-es)"* ]]
  [[ "$output" == *"validation loss: last checkpoint 1.6000, the mean of 2 of the last 3 1.5000"* ]]
  [[ "$output" == *"NOW IT CAME TO PASS"* ]]
  [[ "$output" == *"runs/quickstart/report.html "*" the curves of the training"* ]]
  grep -q '"series":{"nll":\[\[1,2.5,null\]\]}' runs/quickstart/report.html
  python3 -c 'import json
result = json.load(open("runs/quickstart/result.json"))
assert (result["bleu"], result["chrf"], len(result["seconds"])) == (12.34, 56.7, 10), result
assert result["validation_loss"] == {"last_checkpoint": 1.6, "soup": 1.5}, result'
}

@test "averages the newest checkpoints, one a step, oldest first" {
  run scripts/quickstart --offline-text
  grep -qE '^soup runs/quickstart/train/checkpoints/200 runs/quickstart/train/checkpoints/300 runs/quickstart/train/checkpoints/400 runs/quickstart/train/export/1000 --recipe greedy --validate configs/quickstart.json --set .*validation.sets.0.target=runs/quickstart/text/valid.es .*--out runs/quickstart/soup$' calls
}

@test "trains in bf16 where the CPU is faster in it, and goes on so on another CPU" {
  stand_in bin/lscpu 'echo "Flags: fpu avx512f avx512_bf16 avx512_vnni"'
  scripts/quickstart --offline-text
  grep -q '^train .*precision.mode=bf16' calls
  stand_in bin/lscpu 'echo "Flags: fpu avx2"'
  : >calls
  scripts/quickstart --offline-text
  run ! grep -qE '^(preprocess|train) ' calls
  scripts/quickstart --offline-text --fresh
  grep -q '^train .*precision.mode=fp32' calls
  local flags
  for flags in 'avx512_bf16:fp32' 'avx512_bf16 amx_bf16:bf16'; do
    stand_in bin/lscpu "echo 'Vendor ID: GenuineIntel'; echo 'Flags: fpu ${flags%:*}'"
    : >calls
    scripts/quickstart --offline-text --fresh
    grep -q "^train .*precision.mode=${flags#*:}" calls
  done
}

@test "a second call repeats no stage, a newer config repeats from the first stage that reads it" {
  scripts/quickstart --offline-text
  : >calls
  run scripts/quickstart --offline-text
  [ "$status" -eq 0 ]
  [[ "$output" == *"already done, in "* ]]
  run ! grep -qE '^(count|preprocess|train|soup|export|translate) ' calls
  touch -d '+1 minute' configs/quickstart.json
  run scripts/quickstart --offline-text
  grep -q '^train ' calls
}

@test "a tool that fails ends it with the tool's own code, and the next call begins there" {
  # shellcheck disable=SC2016 # expanded by the stand-in
  stand_in apps/preprocess 'if ! [ -e '"$tree"'/fixed ]; then echo 3 0 >"$ARGOSY_EXIT_FILE"; exit 3; fi'
  run scripts/quickstart --offline-text
  [ "$status" -eq 3 ]
  [[ "$output" == *"preprocess failed (code 3)"* ]]
  touch fixed
  : >calls
  run scripts/quickstart --offline-text
  [ "$status" -eq 0 ]
  run ! grep -q '^count ' calls
  grep -q '^preprocess ' calls
}

@test "stopped while training, it lets train end in its own way, and goes on there" {
  # shellcheck disable=SC2016 # expanded by the stand-in
  stand_in apps/train 'mkdir -p runs/quickstart/train/checkpoints/100
    : >runs/quickstart/train/metrics.jsonl
    [ -e '"$tree"'/stopped ] || { trap "touch '"$tree"'/stopped; echo 75 100 >\$ARGOSY_EXIT_FILE; exit 75" TERM
      touch '"$tree"'/waiting
      for i in {1..300}; do sleep 0.1 || true; done; }'
  scripts/quickstart --offline-text >output 2>&1 3>&- &
  pid=$!
  for _ in {1..300}; do
    [ ! -e waiting ] || break
    sleep 0.1
  done
  kill -TERM "$pid"
  code=0
  wait "$pid" || code=$?
  [ "$code" -eq 75 ]
  [ -e stopped ]
  : >calls
  run scripts/quickstart --offline-text
  [ "$status" -eq 0 ]
  run ! grep -q '^preprocess ' calls
  grep -q '^train ' calls
}

@test "two at a time are refused, and --fresh begins again" {
  mkdir -p runs/quickstart/precious
  exec 7>runs/quickstart/.lock
  flock -n 7
  run scripts/quickstart --offline-text --fresh
  [ "$status" -eq 2 ]
  [[ "$output" == *"is using runs/quickstart"* ]]
  [ -d runs/quickstart/precious ]
  exec 7>&-
  scripts/quickstart --offline-text
  : >calls
  run scripts/quickstart --fresh --offline-text
  [ "$status" -eq 0 ]
  grep -q '^count ' calls
  [ ! -e runs/quickstart/precious ]
  run scripts/quickstart --nonsense
  [ "$status" -eq 2 ]
}

@test "what stands in an exit file is never run" {
  # shellcheck disable=SC2016 # for the stand-in
  stand_in apps/export 'echo "PATH[\$(touch\${IFS}hacked)] 1" >"$ARGOSY_EXIT_FILE"; exit 3'
  run scripts/quickstart --offline-text
  [ ! -e hacked ]
  [ "$status" -eq 3 ] # export runs without a launcher that loses its code
}

@test "--fresh empties a run folder that is a link to another disk, and keeps the link" {
  mkdir -p disk/precious runs
  ln -s ../disk runs/quickstart
  run scripts/quickstart --fresh --offline-text
  [ "$status" -eq 0 ]
  [ ! -e disk/precious ]
  [ -L runs/quickstart ]
  [ -e disk/result.json ]
}
