#!/usr/bin/env bats
# Training a part of a model: adapters, and frozen parameters.

load ../verses.sh

setup_file() {
  export WORK="$BATS_FILE_TMPDIR" APPS="$ARGOSY_BUILD_DIR/apps"
  cd "$WORK" && small_run 200 && sed -i 's/"warmup": 20/"warmup": 1/' config.json
  "$APPS/train" config.json --set run_dir=base --set schedule.length=60 2>base.log
  export BASE="$WORK/base/export/000000060"
}

setup() {
  cd "$WORK" || return
}

lora() { # lora RUN_DIR OPTIONS…: adapters next to the matrices of BASE
  local run_dir=$1
  shift
  "$APPS/train" config.json --set run_dir="$run_dir" --set init_from="$BASE" --set lora.rank=4 --set schedule.length=20 "$@"
}

loss_of() { # the last one of a run
  grep -o '"loss":[0-9.]*' "$1/metrics.jsonl" | tail -n 1
}

changed() { # changed FOLDER FOLDER: the tensors whose bytes differ
  python3 -B - "$@" <<'PY'
import json, struct, sys
def tensors(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    (size,) = struct.unpack("<Q", data[:8])
    return {name: data[8 + size + at["data_offsets"][0] : 8 + size + at["data_offsets"][1]]
            for name, at in json.loads(data[8 : 8 + size]).items() if name != "__metadata__"}
one, other = tensors(sys.argv[1]), tensors(sys.argv[2])
print("\n".join(sorted(name for name in one if one[name] != other[name])))
PY
}

@test "adapters train, resume on another number of ranks, and merge where the model is read" {
  lora once --set lora.dropout=0.1 2>log
  lora undropped 2>other.log
  [ "$(loss_of once)" != "$(loss_of undropped)" ]
  grep -q 'trained: .* parameters (.* %); adapters of rank 4, times 1' log
  grep -q '"lora":{"rank":4' once/export/000000020/MANIFEST.json
  lora twice --set lora.dropout=0.1 --set schedule.length=10 --set schedule.decay_end=20 --set checkpoint.export_interval=0 2>log
  on 2 "$APPS/train" config.json --set run_dir=twice --set init_from="$BASE" --set lora.rank=4 --set lora.dropout=0.1 --set schedule.length=20 2>log
  grep -q 'resum' log
  [ "$(loss_of once | cut -c 1-11)" = "$(loss_of twice | cut -c 1-11)" ]

  head -20 train.en | "$APPS/translate" once/export/000000020 --scores >adapted
  head -20 train.en | "$APPS/translate" "$BASE" --scores >before
  run cmp -s adapted before
  [ "$status" -eq 1 ]
  "$APPS/export" once/export/000000020 --format argosy --out merged --verify 2>log
  [ "$(grep -c lora merged/MANIFEST.json)" -eq 0 ]
  head -20 train.en | "$APPS/translate" merged --scores >again
  cmp adapted again
  run "$APPS/soup" once/export/000000020 "$BASE" --out soup
  [ "$status" -eq 3 ]
  [[ $output == *'has adapters'*'--format argosy'* ]]
  "$APPS/soup" merged "$BASE" --allow-cross-run --out soup 2>log
}

@test "running means are kept of what is trained, and read with the rest" {
  lora mean --set optimizer.ema=0.9 --set schedule.length=10 --set schedule.decay_end=20 2>log
  lora mean --set optimizer.ema=0.9 --set schedule.decay_end=20 2>log
  grep -q 'resumed from' log
  "$APPS/export" mean/export/000000020 --format hf --out hf-mean --ema 2>log
  "$APPS/export" mean/export/000000020 --format hf --out hf-last 2>log
  "$APPS/export" "$BASE" --format hf --out hf-first 2>log
  [ "$(changed hf-mean hf-last)" = "$(changed hf-first hf-last)" ]
  changed hf-mean hf-last | grep -q q_proj.weight
}

@test "the loss of a new adapter begins where the model's ended" {
  lora fresh --set schedule.length=2 --set schedule.lr=1e-12 2>log
  "$APPS/train" config.json --set run_dir=same --set init_from="$BASE" --set schedule.lr=1e-12 --set schedule.length=2 2>log
  [ "$(loss_of fresh)" = "$(loss_of same)" ]
}

@test "frozen parameters keep their bytes, take no memory, and a run may not thaw them" {
  "$APPS/train" config.json --set run_dir=frozen --set init_from="$BASE" --set 'freeze=["encoder/*", "embeddings/weight"]' \
    --set schedule.length=20 2>log
  "$APPS/train" config.json --set run_dir=all --set init_from="$BASE" --set schedule.length=20 2>log
  "$APPS/export" "$BASE" --format hf --out hf-base 2>log
  for run in frozen all; do
    "$APPS/export" "$run/export/000000020" --format hf --out "hf-$run" 2>log
    changed hf-base "hf-$run" >"$run.changed"
  done
  grep -q 'model.encoder.layers.0.fc1.weight' all.changed && grep -q shared.weight all.changed
  [ "$(grep -v decoder frozen.changed | grep -c 'encoder\|shared')" -eq 0 ]
  [ "$(grep -c decoder frozen.changed)" = "$(grep -c decoder all.changed)" ]
  state() { "$APPS/train" config.json --set init_from="$BASE" "$@" --dry-run --json 2>log | grep -o '"optimizer_bytes": [0-9]*' | head -n 1 | grep -o '[0-9]*'; }
  [ "$(state --set 'freeze=["encoder/*", "embeddings/weight"]')" -lt "$(state)" ]
  "$APPS/soup" frozen/export/000000020 all/export/000000020 --allow-cross-run --out mean-of-both 2>log
  run "$APPS/soup" frozen/export/000000020 all/export/000000020 --allow-cross-run --optimizer avg --out none
  [ "$status" -eq 3 ]
  [[ $output == *'has no optimizer state of '* ]]
  run "$APPS/train" config.json --set run_dir=frozen --set init_from="$BASE" --set schedule.length=30
  [ "$status" -eq 2 ]
  [[ $output == *'freeze was ["encoder/*","embeddings/weight"] and is now nothing'* ]]
}

@test "peft loads the adapters, and gives what the merged model gives" {
  lora some --set lora.rslora=true --set 'lora.targets=["decoder/*/self_attention/linear_0/value", "encoder/*/linear_1"]' 2>log
  lora every --set lora.alpha=3 2>log
  "$APPS/export" "$BASE" --format hf --out peft-base 2>log
  for run in some every; do
    "$APPS/export" "$run/export/000000020" --format hf --out "peft-$run" 2>log
    "$APPS/export" "$run/export/000000020" --format peft --out "adapters-$run" 2>log
    judge peft peft-base "adapters-$run" "peft-$run"
  done
  # And back: training begins with them, where that of the merged model would.
  from() { # from RUN_DIR OPTIONS…: BASE with the adapters of the run `every`
    "$APPS/train" config.json --set run_dir="$1" --set "init_from=[{\"from\": \"$BASE\"}, {\"from\": \"adapters-every\"}]" \
      --set schedule.lr=1e-12 --set schedule.length=2 "${@:2}"
  }
  from loaded --set lora.rank=4 --set lora.alpha=3 2>log
  grep -q 'init_from adapters-every: the adapters' log
  "$APPS/train" config.json --set run_dir=whole --set init_from=peft-every --set schedule.lr=1e-12 --set schedule.length=2 2>log
  [ "$(loss_of loaded | cut -c 1-12)" = "$(loss_of whole | cut -c 1-12)" ]
  run from other --set lora.rank=8
  [ "$status" -eq 3 ]
  [[ $output == *'set lora.rank to 4, lora.alpha to 3 and lora.rslora to false'* ]]
  run from other --set lora.rank=4 --set lora.alpha=3 --set 'lora.targets=["query"]'
  [ "$status" -eq 3 ]
  [[ $output == *'adapters of other matrices'* ]]
  run from other
  [ "$status" -eq 2 ]
  [[ $output == *'the model has none'* ]]

  run "$APPS/export" "$BASE" --format peft --out none
  [ "$status" -eq 2 ]
  [[ $output == *'has no adapters'* ]]
  lora embeddings --set lora.train_embeddings=true 2>log
  run "$APPS/export" embeddings/export/000000020 --format peft --out none
  [ "$status" -eq 2 ]
  [[ $output == *'embeddings were trained as well'* ]]
  "$APPS/export" embeddings/export/000000020 --format hf --out hf-embeddings 2>log
  changed peft-base hf-embeddings | grep -q shared.weight
  [ "$(changed peft-base peft-every | grep -c shared.weight)" -eq 0 ]
}

@test "the rank is the largest that fits, and stays when the run goes on" {
  lora auto --set lora.rank=auto --dry-run 2>log
  grep -q '^lora.rank auto: 512; ' log && grep -q 'adapters of rank 512, times 1' log
  ARGOSY_RANK_MEMORY=6000000 lora auto --set lora.rank=auto 2>log
  rank=$(grep -o 'lora.rank auto: [0-9]*' log | grep -o '[0-9]*')
  [ "$rank" -ge 16 ] && [ "$rank" -lt 512 ]
  grep -q "\"lora\":{\"rank\":$rank" auto/export/000000020/MANIFEST.json
  grep -q "\"rank\": $rank" auto/run_config.json
  lora auto --set lora.rank=auto --set schedule.length=30 2>log
  grep -q "\"lora\":{\"rank\":$rank" auto/export/000000030/MANIFEST.json
  run lora probed --set lora.rank=auto --probe-memory
  [ "$status" -eq 2 ]
}

@test "embeddings are trained where they are new" {
  trained() { grep -o '"train_embeddings":[a-z]*' "$1/export/0000000$2/MANIFEST.json"; }
  lora usual --set schedule.length=2 2>log
  [ "$(trained usual 02)" = '"train_embeddings":false' ]
  lora parts --set schedule.length=2 --set "init_from={\"from\": \"$BASE\", \"components\": [\"encoder\", \"decoder\"]}" 2>log
  [ "$(trained parts 02)" = '"train_embeddings":true' ]
  cp -r "$BASE" grown
  echo '{"added": []}' >grown/vocab_map.json
  lora trimmed --set schedule.length=2 --set init_from=grown 2>log
  [ "$(trained trimmed 02)" = '"train_embeddings":false' ]
  echo '{"added": [{"piece": "ab", "id": 200}]}' >grown/vocab_map.json
  lora extended --set schedule.length=2 --set init_from=grown --dry-run 2>log
  all=$(grep -o 'trained: [0-9,]*' log | tr -dc 0-9)
  lora extended --set schedule.length=2 --set init_from=grown 2>log
  grep -q 'lora.train_embeddings auto: true' log
  [ "$(grep -o 'trained: [0-9,]*' log | tr -dc 0-9)" = "$all" ]
  # It goes on as it began.
  rm grown/vocab_map.json
  lora extended --set schedule.length=4 --set init_from=grown 2>log
  [ "$(trained extended 04)" = '"train_embeddings":true' ]
  echo no >grown/vocab_map.json
  run lora damaged --set init_from=grown
  [ "$status" -eq 4 ]
  [[ $output == *'grown/vocab_map.json: expected a JSON object'* ]]
}

@test "what does not fit is refused" {
  refused() { # refused TEXT OPTIONS…
    local text=$1
    shift
    run "$APPS/train" config.json --set run_dir=refused "$@"
    [ "$status" -eq 2 ]
    [[ $output == *"$text"* ]]
  }
  refused 'init_from must be an existing model' --set lora.rank=4
  refused 'lora.targets' --set init_from="$BASE" --set 'lora.targets=["q_proj"]'
  refused 'lora.train_embeddings' --set init_from="$BASE" --set 'lora.targets="decoder/embeddings"'
  refused 'which matches none' --set 'freeze=["encoder.0"]'
  refused 'patterns that match all of them' --set 'freeze=["*"]'
  refused 'freeze must be absent' --set init_from="$BASE" --set lora.rank=4 --set 'freeze=["encoder/*"]'
}
