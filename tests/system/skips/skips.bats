#!/usr/bin/env bats
# Skipped cases are told, with their reasons: by ctest, above the last line of scripts/test, and as failures where nothing may be
# skipped. On a small tree with the real launcher and the real scripts/test.

bats_require_minimum_version 1.5.0

setup() {
  source_dir=${ARGOSY_SOURCE_DIR:?}
  cases=${ARGOSY_BUILD_DIR:?}/tests/system/argosy_skipping_cases
  unset ARGOSY_NO_SKIPS ARGOSY_MAY_SKIP
  cd "$BATS_TEST_TMPDIR" || return
  mkdir scripts
  cp "$source_dir/scripts/test" scripts/
  printf '#!/bin/sh\necho "$@" >setup_arguments\n' >scripts/setup
  chmod +x scripts/setup
  cat >CMakePresets.json <<'JSON'
{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build"}],
 "buildPresets": [{"name": "release", "configurePreset": "release"}],
 "testPresets": [{"name": "release", "configurePreset": "release"}]}
JSON
  cat >CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(Fake LANGUAGES NONE)
include($source_dir/scripts/cmake/ArgosyLaunch.cmake)
enable_testing()
CMAKE
}

has() { # has NAME COMMAND…: adds a test to the tree
  local name=$1
  shift
  printf 'add_test(NAME %s COMMAND %s)\n' "$name" "$*" >>CMakeLists.txt
}

bats_file() { # bats_file NAME BODY…: a bats file with a case for each body, as a test of that name
  local name=$1 body
  shift
  for body; do echo "@""test \"$body\" { $body; }"; done >"$name.bats"
  has "$name" bats "$PWD/$name.bats"
}

ends_with() { [ "$(grep -E '^skipped: |^[0-9]+ passed' <<<"$output")" = "$1" ]; }

@test "a test whose every case is skipped is skipped, and one with some is told with the reasons" {
  has all "$cases" --gtest_filter=Skips.*:SkipsElse.*
  has good "$cases" --gtest_filter=Runs.*
  has none_told "$cases" --gtest_filter=SkipsSilently.*
  has some "$cases" --gtest_filter=Runs.*:Skips.*
  has suite "$cases" --gtest_filter=SuiteSkips.*
  has two_ranks "${ARGOSY_MPIEXEC:?}" -n 2 "$cases" --gtest_filter=Skips.*:Runs.First
  bats_file whole_file "skip 'no cluster'" "skip 'no cluster' again"
  bats_file part_of_file skip true
  has by_code sh -c '"echo no python here; exit 77"'
  skipped='skipped: all (2 of 3 cases): no such thing here
skipped: all (1 of 3 cases): nor this
skipped: by_code: no python here
skipped: none_told (1 case): no reason is given
skipped: part_of_file (1 of 2 cases): no reason is given
skipped: some (2 of 4 cases): no such thing here
skipped: suite (1 of 2 cases): the whole suite
skipped: two_ranks (2 of 3 cases): no such thing here
skipped: whole_file (2 cases): no cluster'
  run scripts/test
  [ "$status" -eq 0 ]
  ends_with "$skipped"$'\n''5 passed, 0 failed'
  [ "$(tail -n 1 <<<"$output")" = '5 passed, 0 failed' ]
  [ "$(<setup_arguments)" = --tests ]

  run ctest --test-dir build # alone
  [ "$status" -eq 0 ]
  ends_with "$skipped"
  [ "$(grep -c '\*\*\*Skipped' <<<"$output")" -eq 4 ]

  run scripts/test -R good # tells of no earlier run
  [ "$status" -eq 0 ]
  ends_with '1 passed, 0 failed'
}

@test "where nothing may be skipped, each skip fails, but of tests that may" {
  has good "$cases" --gtest_filter=Runs.*
  has some "$cases" --gtest_filter=Runs.*:Skips.*
  has all "$cases" --gtest_filter=Skips.*
  has gpu "$cases" --gtest_filter=SkipsElse.*
  echo 'set_tests_properties(gpu PROPERTIES ENVIRONMENT ARGOSY_MAY_SKIP=1)' >>CMakeLists.txt
  run scripts/test --no-skips
  [ "$status" -ne 0 ]
  [ "$(tail -n 1 <<<"$output")" = '1 passed, 2 failed' ]
  grep -q '^skipped: gpu (1 case): nor this$' <<<"$output"
}

@test "failures stay failures, and a test without a case is one" {
  has bad "$cases" --gtest_filter=Fails.*:Skips.*
  has empty "$cases" --gtest_filter=Nothing.*
  has not_built "$PWD/nothing"
  bats_file empty_file
  run scripts/test
  [ "$status" -ne 0 ]
  [ "$(tail -n 1 <<<"$output")" = '0 passed, 4 failed' ]
}

@test "a cluster that cannot be here is a skip, and one that does not start is a failure" {
  mkdir -p stand_in/scripts
  for code in 2 70; do
    # shellcheck disable=SC2016 # for the stand-in
    printf '#!/bin/sh\n[ "$1" = up ] && echo "no Slurm" >&2\nexit %s\n' "$code" >stand_in/scripts/slurm-sandbox
    chmod +x stand_in/scripts/slurm-sandbox
    printf '%s\n' "load $source_dir/tests/jobs/cluster" 'setup_file() { start_cluster; }' 'setup() { on_cluster; }' \
      "@""test \"job\" { true; }" >cluster.bats
    ARGOSY_SOURCE_DIR=$PWD/stand_in run bats cluster.bats
    if [ "$code" = 2 ]; then [ "${lines[1]}" = "ok 1 job # skip no Slurm" ]; else [ "$status" -ne 0 ]; fi
  done
}

@test "a program that a test needs and does not find is named" {
  has lost "$source_dir/tests/support/needs" sh no-such-program -- sh -c true
  has found "$source_dir/tests/support/needs" sh cat -- sh -c true
  run scripts/test
  [ "$status" -eq 0 ]
  ends_with 'skipped: lost: no no-such-program on this machine; scripts/setup --tests installs what tests need
1 passed, 0 failed'
}

@test "where tools cannot be installed, setup names the tests that will be skipped, and goes on" {
  mkdir bin
  ln -s /usr/bin/* bin/
  rm -f bin/{apt-get,bats,python3,sbatch,h5dump}
  LIBTORCH_ROOT=$PWD ARGOSY_DEPS=$PWD/deps PATH=$PWD/bin run "$source_dir/scripts/setup" --tests
  [ "$status" -eq 0 ]
  [[ $output == *"setup: tests will be skipped"*"no bats: "*"no python3: "*"no h5dump: "*"no sbatch"*": jobs under a real Slurm"*"no judges in $PWD/deps: "* ]]
  [ "${lines[-1]}" = "setup: ready" ]
}

@test "small disks are mounted, and folders are somebody else's, without root" {
  unshare --user true || skip "this machine gives no user name spaces"
  run unshare --user --map-user=1000 --map-group=1000 "$ARGOSY_BUILD_DIR/tests/fault/fault_checkpoint" \
    --gtest_filter='ReadOnlyDisk.*:ForeignFolder.*'
  [ "$status" -eq 0 ]
  [ "$(grep -c '^\[       OK \] .* (' <<<"$output")" -eq 2 ]
}
