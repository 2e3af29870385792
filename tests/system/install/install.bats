#!/usr/bin/env bats
# The installed tree runs after being moved, with its own libraries, and a program outside can build on it.

setup_file() {
  build=${ARGOSY_BUILD_DIR:-$BATS_TEST_DIRNAME/../../../build}
  cmake --install "$build" --prefix "$BATS_FILE_TMPDIR/first" >/dev/null
  mv "$BATS_FILE_TMPDIR/first" "$BATS_FILE_TMPDIR/moved tree"
  export tree="$BATS_FILE_TMPDIR/moved tree"
}

@test "every tool tells its version" {
  [ -x "$tree/apps/count" ]
  for tool in "$tree"/apps/*; do
    run env -i PATH=/usr/bin:/bin HOME="$BATS_TEST_TMPDIR" "$tool" --version
    [ "$status" -eq 0 ]
    [[ $output == *MPI* ]]
  done
}

@test "libraries of LibTorch come from the tree" {
  checked=0
  for tool in "$tree"/apps/*; do
    run ldd "$tool"
    [[ $output != *'not found'* ]]
    # What a tool links, and what those libraries link in turn, lies in the tree or the system.
    libraries=$(sed -nE 's/.*(lib(torch|c10|cudart|cupti|gomp)[^ ]*) => ([^(]*) \(.*/\3/p' <<<"$output")
    while read -r library; do
      [ -z "$library" ] && continue
      [[ $library == "$tree"/* ]]
      checked=$((checked + 1))
    done <<<"$libraries"
  done
  [ "$checked" -gt 0 ]
}

@test "jobs, configurations and scripts are there" {
  [ -r "$tree/jobs/lib.sh" ]
  [ -r "$tree/jobs/sites/default.sh" ]
  [ -r "$tree/configs/mistral_7b.json" ]
  [ -x "$tree/scripts/setup" ]
}

@test "a program outside builds on it" {
  cmake -G Ninja -S "$BATS_TEST_DIRNAME/consumer" -B "$BATS_TEST_TMPDIR/consumer" -DCMAKE_PREFIX_PATH="$tree" >/dev/null
  cmake --build "$BATS_TEST_TMPDIR/consumer" >/dev/null
  run "$BATS_TEST_TMPDIR/consumer/consumer"
  [ "$status" -eq 3 ]
  [[ $output =~ ^[0-9]+\.[0-9]+\.[0-9]+.*'a consumer' ]]
}
