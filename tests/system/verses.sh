# shellcheck shell=bash
# What bats files that run tools on the committed verses share.

on() { # on RANKS COMMAND…
  local ranks=$1
  shift
  "${ARGOSY_MPIEXEC:?}" -n "$ranks" "$@"
}

first_verses() { # first_verses COUNT NAME: NAME.en and NAME.es
  cut -f 2 "${ARGOSY_SOURCE_DIR:?}/tests/support/text/kjv_rv.tsv" | head -n "$1" >"$2.en"
  cut -f 3 "${ARGOSY_SOURCE_DIR:?}/tests/support/text/kjv_rv.tsv" | head -n "$1" >"$2.es"
}

like_a_clone() { # apps/, configs/ and the text that configs/tiny*.json name
  ln -s "${ARGOSY_BUILD_DIR:?}/apps" apps
  ln -s "${ARGOSY_SOURCE_DIR:?}/configs" configs
  "$ARGOSY_SOURCE_DIR/scripts/data/fetch_text" --offline runs/tiny/text
  export XDG_CACHE_HOME=$BATS_FILE_TMPDIR/user
}

small_run() { # small_run VERSES: config.json, with tokenizer and shards
  first_verses "$1" train
  cat >config.json <<'JSON'
{
  "run_dir": "run", "seed": 3,
  "data": {"tokenizer": "t.model", "shards": "shards", "tokenizer_training": {"vocab_size": 300},
           "corpora": [{"name": "verses", "source": "train.en", "target": "train.es"}]},
  "model": {"width": 32, "ff": 48, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 1}},
  "schedule": {"lr": 2e-3, "warmup": 20, "length": 100},
  "batch": {"global_size": 2000, "micro_size": 1000, "pool": 200},
  "precision": {"mode": "fp32"},
  "checkpoint": {"interval": 1000},
  "telemetry": {"log_interval": 5}
}
JSON
  "${ARGOSY_BUILD_DIR:?}/apps/preprocess" config.json 2>preprocess.log
}

judge() { # judge NAME ARGUMENTS…: skips the test where its programs are missing
  local python=${ARGOSY_DEPS:-$HOME/.cache/argosy}/judges/bin/python rc=0
  [ -x "$python" ] || skip "scripts/setup --judges has not run"
  "$python" "$ARGOSY_SOURCE_DIR/tests/system/judges/$1_judge.py" "${@:2}" || rc=$?
  ((rc != 77)) || skip "scripts/setup --peer has not run"
  return "$rc"
}
