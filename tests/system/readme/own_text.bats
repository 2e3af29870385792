#!/usr/bin/env bats
# README's "Train on your own text", as it stands there: its commands are run on two small files, with smaller sizes.

bats_require_minimum_version 1.5.0

load ../verses.sh

setup() {
  cd "$BATS_TEST_TMPDIR" && like_a_clone
  mkdir bin text
  printf '#!/bin/sh\nexec %s "$@"\n' "${ARGOSY_MPIEXEC:?}" >bin/mpiexec && chmod +x bin/mpiexec
  export PATH=$PWD/bin:$PATH
  first_verses 400 text/train
  mv text/train.es text/train.fr # the verses are Spanish; the file names are README's
  head -5 text/train.en >text/new.en
}

sizes=(data.tokenizer_training.vocab_size=400 model.preset=mt_tiny precision.mode=fp32 schedule.warmup=5 schedule.length=20
  batch.global_size=2000 batch.micro_size=1000 batch.pool=200 checkpoint.interval=5 validation.interval=10)

@test "the commands for one's own text work as typed, on two files and smaller sizes" {
  mapfile -t commands < <(sed -n '/^## Train on your own text/,/^## [^T]/s/^    //p' "$ARGOSY_SOURCE_DIR/README.md")
  [ "${#commands[@]}" -eq 4 ]
  for command in "${commands[@]}"; do
    bash -euc "${command/configs\/mt_base.json/configs/mt_base.json ${sizes[*]/#/--set }}"
  done
  [ "$(wc -l <text/new.fr)" -eq 5 ]
  grep -q '"validation":' runs/mt_base/train/metrics.jsonl # of the part that data.split holds out
}
