#!/usr/bin/env bats
# Which folders scripts/slurm-sandbox takes for its own: it removes them as root. Nothing here starts a cluster.

bats_require_minimum_version 1.5.0

setup() {
  sandbox=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)/scripts/slurm-sandbox
  mkdir -p "$BATS_TEST_TMPDIR/theirs" "$BATS_TEST_TMPDIR/bin"
  cd "$BATS_TEST_TMPDIR" || return
  touch theirs/slurm.conf theirs/precious
  for program in slurmctld unshare; do # where something is refused too late, no cluster comes up
    printf '#!/bin/sh\nexit 1\n' >bin/$program && chmod +x bin/$program
  done
  PATH=$PWD/bin:$PATH
}

refused() { # refused FOLDER: by every command, and nothing in it is touched
  local command
  for command in up down env status 'kill-node 1' 'exec true' restart-controller; do
    # shellcheck disable=SC2086 # words
    ARGOSY_SANDBOX=$1 run "$sandbox" $command
    [ "$status" -eq 2 ]
    [[ $output == *"$2"* ]]
  done
  [ -e theirs/slurm.conf ]
  [ -e theirs/precious ]
}

@test "a folder with a slurm.conf that it has not made" { refused "$PWD/theirs" 'has not made'; }

@test "a link to a folder, made by it or not" {
  ln -s theirs link
  refused "$PWD/link" 'is a link'
  refused "$PWD/link/" 'is a link'
  touch theirs/.argosy-sandbox
  refused "$PWD/link" 'is a link'
}

@test "a folder of another user, or with a mark that is a link" {
  ln -s slurm.conf theirs/.argosy-sandbox
  refused "$PWD/theirs" 'has not made'
  [ "$(id -u)" = 0 ] || return 0 # chown below
  rm theirs/.argosy-sandbox
  touch theirs/.argosy-sandbox
  chown 12345 theirs
  refused "$PWD/theirs" 'has not made'
}

@test "a folder that slurm.conf cannot name" { refused "$PWD/with space" 'cannot name'; }

@test "the usual folder is one where root alone writes" {
  unset ARGOSY_SANDBOX
  run -0 "$sandbox" --help
  folder=$(sed -nE 's#.* default (/[^,]*),.*#\1#p' <<<"$output")
  [ -n "$folder" ]
  [ "$(stat -c '%u %a' "$(dirname "$folder")")" = '0 755' ]
}
