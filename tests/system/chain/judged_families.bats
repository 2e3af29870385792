#!/usr/bin/env bats
# Models of every family that Argosy exports and imports, as transformers and CTranslate2 judge them.

bats_require_minimum_version 1.5.0

load ../verses.sh

setup_file() { cd "$BATS_FILE_TMPDIR" && like_a_clone; }

setup() { cd "$BATS_FILE_TMPDIR" || return; }

@test "transformers and CTranslate2 open what the other families export: BPE, pre-norm, untied, a window, ids of others" {
  # small_pair NAME CONFIG SETTING…: trains NAME and exports it; both judge it on the first lines, transformers in bf16 as well
  small_pair() {
    local name=$1 config=$2 model=runs/$1/export/000000030 source=twenty.en settings=()
    shift 2
    for setting in run_dir="runs/$name" data.tokenizer="runs/$name.model" data.shards="runs/$name.shards" \
      data.tokenizer_training.type=bpe schedule.length=30 schedule.warmup=10 precision.mode=fp32 validation.interval=1000 "$@"; do
      settings+=(--set "$setting")
    done
    on 1 apps/preprocess "$config" "${settings[@]}"
    on 2 apps/train "$config" "${settings[@]}"
    on 1 apps/export "$model" --format hf --out "hf.$name"
    on 1 apps/export "$model" --format hf --quantization bfloat16 --out "bf16.$name"
    on 1 apps/export "$model" --format ct2 --out "ct2.$name"
    [ "$config" = configs/tiny.json ] || source=prompts # a language model may say nothing after a whole line
    judge hf apps/translate "$model" "hf.$name" $source "bf16.$name"
    judge ctranslate2 apps/translate "$model" "ct2.$name" $source
  }
  head -20 runs/tiny/text/test.en >twenty.en
  cut -d' ' -f1-6 twenty.en >prompts
  small_pair pegasus configs/tiny.json model.norm_position=pre model.tie_embeddings=false model.activation=gelu
  small_pair mistral configs/tiny_lm.json model.window=20 model.head_size=24 model.tie_embeddings=true
  small_pair qwen2 configs/tiny_lm.json model.qkv_bias=true 'model.rope_scaling={"factor": 4, "original_max_positions": 64}'
  small_pair t5 configs/tiny.json model.norm=rms_norm model.norm_position=pre model.activation=geglu model.bias=false \
    model.encoder.position=t5 model.decoder.position=t5 model.tie_embeddings=false model.tie_inputs=true
  "${ARGOSY_DEPS:-$HOME/.cache/argosy}/judges/bin/python" - <<'PYTHON'
import sentencepiece
sentencepiece.SentencePieceTrainer.train(input="runs/tiny/text/train.en,runs/tiny/text/train.es", model_prefix="runs/m2m_100", model_type="bpe",
                                         vocab_size=1000, bos_id=0, pad_id=1, eos_id=2, unk_id=3, minloglevel=2)
PYTHON
  small_pair m2m_100 configs/tiny.json data.tokenizer_training=null 'model.token_ids={"bos": 0, "pad": 1, "eos": 2, "unk": 3, "start": 2}' \
    model.norm_position=pre model.output_bias=false model.encoder.position=sinusoidal_fairseq model.decoder.position=sinusoidal_fairseq
}

@test "transformers and CTranslate2 open a task of a model with a tokenizer for each language" {
  local settings=() setting
  for setting in run_dir=runs/own 'data.tokenizer=runs/own.{language}.model' data.shards=runs/own.shards 'model.embeddings={"share": "language"}' \
    schedule.length=30 schedule.warmup=10 precision.mode=fp32 validation.sets=[] 'validation.metrics=["loss"]'; do
    settings+=(--set "$setting")
  done
  on 1 apps/preprocess configs/tiny.json "${settings[@]}"
  on 2 apps/train configs/tiny.json "${settings[@]}"
  local format task
  task=$(grep -om1 '"name": "[^"]*"' configs/tiny.json | cut -d'"' -f4)
  for format in argosy hf ct2; do on 1 apps/export runs/own/export/000000030 --task "$task" --format $format --out "$format.own"; done
  head -20 runs/tiny/text/test.en >own.en
  run cmp -s hf.own/source.spm hf.own/target.spm
  [ "$status" -eq 1 ]
  judge hf apps/translate argosy.own hf.own own.en
  judge ctranslate2 apps/translate argosy.own ct2.own own.en
}

@test "models that transformers makes are imported, translate and continue as there, and come back byte for byte" {
  head -40 runs/tiny/text/test.en >forty.en
  judge import apps/export apps/translate forty.en
}

@test "tokenizers with a table of ids, OPUS-MT's and M2M-100's, give transformers' ids, translate as there, and come back byte for byte" {
  judge table "$ARGOSY_BUILD_DIR/tests/system/tokenize" apps/export apps/translate runs/tiny/text/train.en runs/tiny/text/train.es
}

@test "trimmed and extended vocabularies of tokenizer.json and of piece tables are those of Hugging Face's libraries" {
  judge vocabulary "$ARGOSY_BUILD_DIR/tests/system/tokenize" apps/export runs/tiny/text/train.en runs/tiny/text/train.es
}
