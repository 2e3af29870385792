#!/usr/bin/env bats
# Models of other families than the usual ones, through the chain: ids, training, translation, what export says.

load ../verses.sh

setup_file() {
  export WORK="$BATS_FILE_TMPDIR" APPS="$ARGOSY_BUILD_DIR/apps"
  cd "$WORK" && first_verses 60 train
}

common='"seed": 3, "schedule": {"lr": 2e-3, "warmup": 2, "length": 4}, "precision": {"mode": "fp32"},
  "checkpoint": {"interval": 2}, "telemetry": {"log_interval": 1}'

@test "T5 v1.1: pad, end and unknown are ids 0, 1 and 2, and the model trains and translates" {
  cd "$WORK"
  cat >t5.json <<JSON
{ "run_dir": "t5", $common,
  "data": {"tokenizer": "t5.model", "shards": "t5-shards", "tokenizer_training": {"vocab_size": 300},
           "corpora": [{"name": "verses", "source": "train.en", "target": "train.es"}]},
  "model": {"width": 32, "ff": 48, "heads": 2, "norm": "rms_norm", "norm_position": "pre", "bias": false, "activation": "geglu",
            "encoder": {"layers": 1, "position": "t5"}, "decoder": {"layers": 2, "position": "t5"}},
  "batch": {"global_size": 2000, "micro_size": 1000, "pool": 200} }
JSON
  "$APPS/preprocess" t5.json 2>log
  "$APPS/train" t5.json --dry-run --json 2>log >plan.json
  grep -q 'model.encoder.position is t5, and the model has 0.0 M parameters' plan.json
  "$APPS/train" t5.json --print-config 2>log | grep -q '"activation": "geglu"'
  "$APPS/train" t5.json 2>log
  grep -q 'model.encoder.position is t5' log
  head -2 train.en | "$APPS/translate" t5/export/000000004 --max-length 5 >lines
  [ "$(wc -l <lines)" -eq 2 ]
  # Marian's ids are not T5's: another layout of the same shape does not take the tokenizer.
  run "$APPS/train" t5.json --set run_dir=other --set model.bias=true
  [ "$status" -eq 3 ]
  [[ $output == *'t5.model: expected the ids of a Pegasus model (bos -1, eos 0, unk 1, pad -1), got bos -1, eos 1, unk 2, pad 0'* ]]
  for format in hf ct2; do
    "$APPS/export" t5/export/000000004 --format "$format" --out "t5-$format" 2>log
    head -2 train.en | "$APPS/translate" "t5-$format" --max-length 5 >same
    cmp lines same
  done
  run "$APPS/export" t5/export/000000004 --format hf --quantization int8 --out t5-int8
  [ "$status" -eq 2 ]
}

@test "rows of T5 are multiples of 8 wide, where nothing else is said" {
  cd "$WORK"
  "$APPS/train" t5.json --set run_dir=eights --set batch.width_multiple=8 2>log
  "$APPS/train" t5.json --set run_dir=ones --set batch.width_multiple=1 2>log
  last() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl" | tail -n 1; }
  [ "$(last t5)" = "$(last eights)" ] && [ "$(last t5)" != "$(last ones)" ]
}

@test "an encoder without positions is refused unless it is asked for" {
  cd "$WORK"
  run "$APPS/train" t5.json --set model.encoder.position=none --dry-run
  [ "$status" -eq 2 ]
  [[ $output == *'model.allow_encoder_without_positions'* ]]
  "$APPS/train" t5.json --set model.encoder.position=none --set model.allow_encoder_without_positions=true \
    --set model.vocab_size=300 --set data.tokenizer=none.model --dry-run
}

@test "Llama 3 and Qwen2: scaled rotary positions, and biases of queries, keys and values" {
  cd "$WORK"
  cat >lm.json <<JSON
{ "run_dir": "lm", $common,
  "data": {"tokenizer": "lm.model", "shards": "lm-shards", "tokenizer_training": {"vocab_size": 400},
           "corpora": [{"name": "verses", "source": "train.en"}]},
  "model": {"type": "decoder", "width": 32, "ff": 48, "heads": 2, "decoder": {"layers": 1}, "qkv_bias": true, "rope_theta": 50,
            "rope_scaling": {"factor": 4, "original_max_positions": 32}, "norm_epsilon": 1e-6},
  "batch": {"global_size": 16, "micro_size": 8, "unit": "examples", "sequence_length": 64} }
JSON
  "$APPS/preprocess" lm.json 2>log
  "$APPS/train" lm.json 2>log
  "$APPS/train" lm.json --set run_dir=plain --set model.rope_scaling=null 2>log
  [ -s lm/export/000000004/manifest.json ] && [ -s plain/export/000000004/manifest.json ]
  last() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl" | tail -n 1; }
  [ -n "$(last lm)" ] && [ "$(last lm)" != "$(last plain)" ]
  run "$APPS/train" lm.json --set run_dir=other --set model.rope_scaling.high_freq_factor=0.5
  [ "$status" -eq 2 ]
  [[ $output == *'model.rope_scaling.high_freq_factor'* ]]
}

@test "bits per byte are the loss, by bytes of the text instead of tokens" {
  cd "$WORK"
  cat >bits.json <<JSON
{ "run_dir": "bits", $common,
  "data": {"tokenizer": "bits.model", "shards": "bits-shards", "tokenizer_training": {"vocab_size": 400},
           "corpora": [{"name": "verses", "source": "train.en"}]},
  "validation": {"interval": 4, "steps": 100000, "metrics": ["loss", "bits_per_byte"], "sets": [{"source": "valid.en"}],
                 "early_stop": {"metric": "bits_per_byte"}},
  "model": {"type": "decoder", "width": 32, "ff": 48, "heads": 2, "decoder": {"layers": 1}},
  "batch": {"global_size": 16, "micro_size": 8, "unit": "examples", "sequence_length": 24} }
JSON
  tail -n 9 train.en >valid.en
  "$APPS/preprocess" bits.json 2>log
  mpiexec -n 2 "$APPS/train" bits.json 2>log
  figure() { grep '"validation"' bits/metrics.jsonl | grep -o "\"$1\":[0-9.]*" | cut -d : -f 2; }
  tokens=$("$APPS/count" --tokenizer bits.model valid.en 2>&1 >/dev/null | grep -o '"tgt_tokens":[0-9]*' | head -n 1)
  awk -v loss="$(figure loss)" -v bits="$(figure bits_per_byte)" -v tokens="${tokens#*:}" -v bytes="$(wc -c <valid.en)" \
    'BEGIN { exit !(loss > 0 && bits > 0 && (bits * log(2) * bytes / (loss * tokens) - 1) ^ 2 < 1e-10) }'
}

@test "a prefix language model reads prompts in both directions, in training, translation and no export to others" {
  cd "$WORK"
  paste train.en train.es >pairs.tsv
  cat >prefix.json <<JSON
{ "run_dir": "prefix", $common,
  "data": {"tokenizer": "prefix.model", "shards": "prefix-shards", "tokenizer_training": {"vocab_size": 400},
           "corpora": [{"name": "verses", "languages": ["en"], "source": "pairs.tsv", "fields": {"source": "1", "target": "2"}}]},
  "validation": {"interval": 2, "sets": [{"source": "pairs.tsv", "fields": {"source": "1", "target": "2"}}]},
  "model": {"type": "decoder", "prefix_lm": true, "width": 32, "ff": 48, "heads": 2, "decoder": {"layers": 2}},
  "batch": {"global_size": 16, "micro_size": 8, "unit": "examples", "sequence_length": 64} }
JSON
  "$APPS/preprocess" prefix.json 2>log
  "$APPS/train" prefix.json 2>log
  run grep -q 'exportable as' log
  [ "$status" -eq 1 ]
  "$APPS/train" prefix.json --set run_dir=causal --set model.prefix_lm=false 2>log
  for figure in loss perplexity; do # of training, and of validation
    last() { grep -o "\"$figure\":[0-9.]*" "$1/metrics.jsonl" | tail -n 1; }
    [ -n "$(last prefix)" ] && [ "$(last prefix)" != "$(last causal)" ]
  done
  run "$APPS/train" prefix.json --set model.prefix_lm=false --set schedule.length=6
  [ "$status" -eq 2 ]
  [[ $output == *': model was '*'"prefix_lm":true'*' and is now '*'"prefix_lm":false'* ]]
  head -3 train.en | "$APPS/translate" prefix/export/000000004 --max-length 6 >lines
  [ "$(wc -l <lines)" -eq 3 ]
  for format in hf ct2; do
    run "$APPS/export" prefix/export/000000004 --format "$format" --out "prefix-$format"
    [ "$status" -eq 2 ]
    [[ $output == *'needs model.prefix_lm to be false'* ]]
    [ ! -e "prefix-$format" ]
  done
  "$APPS/export" prefix/export/000000004 --format argosy --verify --out prefix-argosy 2>log
  head -3 train.en | "$APPS/translate" prefix-argosy --max-length 6 | cmp lines
  sed 's/"fields": {"source": "1", "target": "2"}/"fields": {"text": "1"}/' prefix.json >texts.json
  run "$APPS/train" texts.json
  [ "$status" -eq 2 ]
  [[ $output == *'model.prefix_lm must be false, since no corpus has prompts'* ]]
}

@test "a language model of source code continues across lines, and --escapes keeps them in one" {
  cd "$WORK" && mkdir src
  for i in {1..60}; do
    printf 'import os\n\n\ndef add_%d(a, b):\n\tif a > b:\n\t\treturn a\n\treturn a + b\n\n\nx = "\\\\t"\n' $((i % 7)) >"src/$i.py"
  done
  cat >code.json <<JSON
{ "run_dir": "code", "seed": 3,
  "data": {"tokenizer": "code.model", "shards": "code-shards", "tokenizer_training": {"vocab_size": 294},
           "corpora": [{"name": "code", "source": "src/*.py", "documents": "file"}]},
  "model": {"type": "decoder", "width": 64, "ff": 128, "heads": 4, "decoder": {"layers": 2}},
  "schedule": {"lr": 1e-2, "warmup": 10, "length": 90}, "precision": {"mode": "fp32"},
  "batch": {"unit": "examples", "global_size": 16, "micro_size": 16, "sequence_length": 96} }
JSON
  "$APPS/preprocess" code.json 2>log
  "$APPS/train" code.json 2>log
  complete() { "$APPS/translate" code/export/000000090 --escapes --input prompt "$@" 2>log; }
  printf '%s\n' 'import os\n\n\ndef add_3(a, b):' >prompt
  complete --max-length 90 --max-length-factor 0 >continued
  [ "$(wc -l <continued)" -eq 1 ]
  grep -qF '\n\tif a > b:\n\t\treturn a\n\treturn a + b\n\n\nx = "\\\\t"\n' continued
  complete --score --target continued >scores
  [ "$(cut -f 4 scores)" = 1 ] # what greedy search gives
}
