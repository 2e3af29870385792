#!/usr/bin/env bats
# batch.micro_size auto and train --probe-memory: what is chosen, and that a run keeps it.

bats_require_minimum_version 1.5.0
load ../verses.sh

setup_file() {
  export WORK="$BATS_FILE_TMPDIR" TRAIN="$ARGOSY_BUILD_DIR/apps/train"
  cd "$WORK" && small_run 200
}

setup() { cd "$WORK" || return; }

figure() { sed -n "s/^result .*\"$1\":\([0-9]*\).*/\1/p" log; }

@test "the probe measures growing micro-batches, and writes nothing" {
  local before sizes
  before=$(find . -not -name log | sort)
  on 2 "$TRAIN" config.json --probe-memory 2>log
  [ "$(find . -not -name log | sort)" = "$before" ]
  sizes=$(sed -n 's/.*micro_size \([0-9]*\), accumulation.*: measured.*forecast.*: fits$/\1/p' log | paste -sd ' ')
  [ "$sizes" = "1 2 4 8 16 40 80 200 500 1000" ]
  [ "$(figure micro_size)" = 1000 ]
  [ "$(figure accumulation)" = 1 ]
  [ "$(figure memory_bytes)" -gt "$(figure peak_bytes)" ]
}

@test "the probe stops below nine tenths of the memory, and before a size that would need more than there is" {
  ARGOSY_RANK_MEMORY=5000000 on 1 "$TRAIN" config.json --probe-memory --set batch.micro_size=auto 2>log
  [ "$(figure memory_bytes)" = 5000000 ]
  [ "$(figure micro_size)" = 500 ]
  [ "$(figure peak_bytes)" -le 4500000 ]
  grep -q 'micro_size 1000: not tried, since it would need about [0-9.]* MiB per rank' log
  [ "$(sed -n 's/.*: measured \([0-9]*\)\..*/\1/p' log | sort -n | tail -n 1)" -le 4 ]
}

@test "the probe refuses a memory in which nothing fits, and one that is no number" {
  run -2 env ARGOSY_RANK_MEMORY=500000 "$TRAIN" config.json --probe-memory
  [[ "$output" == *"the smallest that divides the step, 1, needs "*"try --set sharding.zero_stage=3"* ]]
  run -2 env ARGOSY_RANK_MEMORY=5G "$TRAIN" config.json --probe-memory
  [[ "$output" == *"ARGOSY_RANK_MEMORY: expected a number of bytes above 0, got 5G"* ]]
}

@test "auto is decided at the start, and kept when the run goes on elsewhere" {
  local args=(config.json --set run_dir=auto --set batch.micro_size=auto)
  ARGOSY_RANK_MEMORY=5000000 on 2 "$TRAIN" "${args[@]}" --set schedule.length=30 2>log
  grep -q 'micro_size auto: 500, accumulation 2; with rows of full length a rank needs [0-9.]* MiB (estimate) of 4.8 MiB' log
  grep -q '"micro_size": *500' auto/export/000000030/MANIFEST.json
  grep -q '"micro_size": *500' auto/run_config.json
  # Another number of ranks, and more memory: the same micro-batches, which a run with this number also has.
  on 1 "$TRAIN" "${args[@]}" --set schedule.length=40 2>log
  grep -q 'micro_size auto: 500, as the run began; accumulation 4' log
  on 1 "$TRAIN" "${args[@]}" --set schedule.length=50 --set batch.micro_size=500 2>log
  [ "$(figure step)" = 50 ]
  # Less memory: it goes on, and says what may happen.
  ARGOSY_RANK_MEMORY=3000000 on 1 "$TRAIN" "${args[@]}" --set schedule.length=60 2>log
  grep -q 'micro_size 500, with which this run began, may need [0-9.]* MiB per rank (estimate), but a rank has 2.9 MiB' log
  [ "$(figure step)" = 60 ]
  # Only where the batches may change is the size chosen again.
  on 1 "$TRAIN" "${args[@]}" --set schedule.length=70 --allow-change batch 2>log
  grep -q 'micro_size auto: 2000, accumulation 1' log
  [ "$(figure step)" = 70 ]
}

@test "a dry run says the size, and a soup is evaluated with that of its checkpoints" {
  "$TRAIN" config.json --dry-run --ranks 2 --set batch.micro_size=auto 2>log
  grep -q '^batch.micro_size auto: 1000, accumulation 1; ' log
  grep -q '^a step: 2,000 padded_tokens = 2 micro-batches of 1,000 on 2 ranks' log
  [ "$("$TRAIN" config.json --set batch.micro_size=auto --print-config batch.micro_size)" = '"auto"' ]
  on 1 "$TRAIN" config.json --set run_dir=souped --set schedule.length=20 --set checkpoint.interval=10 --set schedule.warmup=5 2>log
  sed 's/"micro_size": 1000/"micro_size": "auto"/' config.json >auto.json
  "$ARGOSY_BUILD_DIR/apps/soup" souped/checkpoints/000000010 souped/export/000000020 --recipe greedy --validate auto.json \
    --set 'validation.sets=[{"source": "train.en", "target": "train.es"}]' --out soup 2>log
}

@test "a frozen encoder keeps nothing, as planned" {
  for freeze in '[]' '["encoder/*"]'; do
    "$TRAIN" config.json --set run_dir=frozen --from-scratch --set schedule.length=4 --set schedule.warmup=2 --set "freeze=$freeze" \
      --set model.width=128 --set model.ff=512 --set model.encoder.layers=6 --set model.tie_embeddings=false \
      --set batch.global_size=2000 --set batch.micro_size=2000 2>>frozen.log
  done
  python3 -B - frozen.log <<'PY'
import json, sys
lines = [line for line in open(sys.argv[1]) if line.startswith("result ")]
trained, frozen = (json.loads(line.removeprefix("result "))["memory"] for line in lines)
assert frozen["planned_activation_bytes"] < 0.4 * trained["planned_activation_bytes"], (frozen, trained)
for of in (trained, frozen):  # libraries bring scratch of their own
    assert 0.9 < of["activation_bytes"] / of["planned_activation_bytes"] < 1.35, of
PY
}
