#!/usr/bin/env bats
# What each tool prints on standard output arrives there, or the tool ends with 4 and says so.

bats_require_minimum_version 1.5.0

load ../verses.sh

setup() {
  cd "$BATS_TEST_TMPDIR" || return
  apps=${ARGOSY_BUILD_DIR:?}/apps
  export XDG_CACHE_HOME=$BATS_TEST_TMPDIR/user ARGOSY_EXIT_FILE=$BATS_TEST_TMPDIR/exit
  first_verses 20 verses
}

lost() { # lost COMMAND…: what it prints cannot be written
  local to rc
  for to in full closed; do
    rm -f exit
    rc=0
    if [ $to = closed ]; then "$@" 2>log >&- || rc=$?; else "$@" 2>log >/dev/full || rc=$?; fi
    [ $rc = 4 ] || { echo "$*: $rc where standard output is $to" && cat log && return 1; }
    [ "$(cut -d' ' -f1 exit)" = 4 ]
    [ "$(grep -c 'error *standard output cannot be written ' log)" = 1 ]
  done
}

@test "every tool tells that its help or version was not taken" {
  for tool in count preprocess train soup soup_validated export export_verified translate; do
    lost "$apps/$tool" --help
    lost "$apps/$tool" --version
  done
}

@test "configuration, schema, plan and table that nobody takes" {
  for tool in count preprocess train; do
    lost "$apps/$tool" "$ARGOSY_SOURCE_DIR/configs/tiny.json" --print-config
    lost "$apps/$tool" --print-schema
  done
  lost "$apps/train" "$ARGOSY_SOURCE_DIR/configs/mistral_7b.json" --dry-run --json --ranks 8 --set model.vocab_size=32000
  lost "$apps/count" verses.en
}

@test "on several ranks" {
  rc=0
  on 2 sh -c "exec $apps/count verses.en >/dev/full" 2>log || rc=$?
  [ $rc != 0 ]
  [ "$(cut -d' ' -f1 exit)" = 4 ]
  grep -q 'standard output cannot be written .*ENOSPC' log
}
