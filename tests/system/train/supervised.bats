#!/usr/bin/env bats
# A run that is killed every few seconds, under a loop that starts it again until it ends by itself.

load ../verses.sh

setup() {
  TRAIN="$ARGOSY_BUILD_DIR/apps/train"
  cd "$BATS_TEST_TMPDIR" && first_verses 20 valid
}

# What the run has come to: digests of the shards of its exports, and metrics.jsonl without what a clock has measured.
outcome() {
  python3 - "$1" <<'PY'
import json, pathlib, sys
run = pathlib.Path(sys.argv[1])
for manifest in sorted(run.glob("export/*/MANIFEST.json")):
    print(manifest.parent.name, [shard["root_digest"] for shard in json.load(open(manifest))["shards"]])
measured = {"src_tokens_per_s", "tgt_tokens_per_s", "padded_tokens_per_s", "tflops_per_rank", "mfu", "mfu_full",
            "memory_bytes", "data_wait_ms", "step_ms", "eta_s"}
for line in open(run / "metrics.jsonl"):
    print(json.dumps({key: value for key, value in json.loads(line).items() if key not in measured}))
PY
}

# kill_one_life: the launcher, all ranks or one of them, a random while behind the first checkpoint of this life, now and then
# before it has begun.
kill_one_life() {
  local ranks _
  if ((RANDOM % 5 > 0)); then
    for _ in $(seq 500); do
      if grep -qs -e "saved " -e "^result " log; then break; fi
      sleep 0.02
    done
  fi
  sleep "0.$((RANDOM % 8))$((RANDOM % 10))"
  mapfile -t ranks < <(pgrep -f "^$TRAIN $config --set run_dir=restarted ")
  case $((${#ranks[@]} > 0 ? RANDOM % 3 : 0)) in
    0) kill -KILL "$launcher" ;;
    1) kill -KILL "${ranks[@]}" ;;
    2) kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}" ;;
  esac 2>/dev/null || true # the life may have ended by itself
}

# survives_kills CONFIG MOST LENGTH OPTIONS…: on two ranks; undisturbed, and killed at random until it has been killed MOST times.
survives_kills() {
  local config=$1 most=$2 length=$3 kills=0 lives=0 code="" step=0
  local settings=(--set "schedule.length=$length" --set checkpoint.interval=7 --set checkpoint.max_checkpoints=2
    --set checkpoint.export_interval=150 --set validation.interval=50 "${@:4}")
  ARGOSY_EXIT_FILE=sound.exit "$ARGOSY_MPIEXEC" -n 2 "$TRAIN" "$config" --set run_dir=sound "${settings[@]}" 2>sound.log
  read -r code step <sound.exit
  [ "$code $step" = "0 $length" ]

  code=""
  RANDOM=${ARGOSY_FAULT_SEED:-7}
  while [ "$code" != 0 ]; do
    lives=$((lives + 1))
    rm -f life.exit
    ARGOSY_EXIT_FILE=life.exit "$ARGOSY_MPIEXEC" -n 2 "$TRAIN" "$config" --set run_dir=restarted "${settings[@]}" \
      --set comm.timeout_s=20 >life.out 2>log 3>&- &
    launcher=$!
    if ((kills < most)); then
      kill_one_life
      kills=$((kills + 1))
    fi
    wait $launcher || true
    while pgrep -f "^$TRAIN $config --set run_dir=restarted " >/dev/null; do sleep 0.02; done
    code=""
    if [ -e life.exit ]; then read -r code step <life.exit; fi
    cat log >>lives.log
    [ $lives -le $((most + 5)) ]
  done
  echo "$kills kills, $lives lives"
  [ "$step" = "$length" ]
  [ $lives -gt $((most * 3 / 8)) ]
  diff <(outcome restarted) <(outcome sound)
  [ "$(find restarted -name '*tmp-*' -o -name '.*-*' | wc -l)" = 0 ]
}

@test "a run killed at random every few seconds reaches its last step with the bits of an undisturbed one" {
  local scale=${ARGOSY_FAULT_SCALE:-1}
  small_run 500
  survives_kills config.json $((8 * scale)) $((400 * scale)) --set batch.global_size=4000 \
    --set 'validation.sets=[{"source": "valid.en", "target": "valid.es"}]'
}

@test "so does a run whose ranks have some of the tasks each" {
  local scale=${ARGOSY_FAULT_SCALE:-1} pair part
  first_verses 500 verses
  for pair in en-es en-up; do mkdir -p "text/$pair" && cp verses.en "text/$pair/train.en" && cp valid.en "text/$pair/valid.en"; done
  cp verses.es text/en-es/train.es && cp valid.es text/en-es/valid.es
  for part in train valid; do tr '[:lower:]' '[:upper:]' <text/en-up/$part.en >text/en-up/$part.up; done
  cat >tasks.json <<'JSON'
{ "run_dir": "run", "seed": 3, "precision": {"mode": "fp32"}, "schedule": {"lr": 2e-3, "warmup": 2, "length": 8},
  "data": {"tokenizer": "t.model", "shards": "shards", "tokenizer_training": {"vocab_size": 300}},
  "tasks": {"languages": ["en", "es", "up"], "pairs": ["en-es", "es-en", "en-up"],
            "files": {"train": "text/{sorted_pair}/train.{language}", "validation": "text/{sorted_pair}/valid.{language}"}},
  "model": {"width": 32, "ff": 48, "heads": 2, "embeddings": {"share": "language"},
            "encoder": {"stacks": [{"layers": 1, "share": "source"}, {"layers": 1}]},
            "decoder": {"stacks": [{"layers": 1, "share": "target"}]}},
  "placement": {"en-es": [0], "es-en": [1], "en-up": [0, 1]}, "validation": {"metrics": ["loss"]},
  "batch": {"global_size": 4000, "micro_size": 500, "pool": 400}, "telemetry": {"log_interval": 5} }
JSON
  "$ARGOSY_BUILD_DIR/apps/preprocess" tasks.json 2>preprocess.log
  survives_kills tasks.json $((4 * scale)) $((200 * scale))
}
