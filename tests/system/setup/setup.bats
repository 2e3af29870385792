#!/usr/bin/env bats
# scripts/setup without root: it finds a site's libraries, LibTorch and launcher where a build does, and names what is missing.
# What it would install is hidden from it: g++, pkg-config and apt-get are stand-ins.

bats_require_minimum_version 1.5.0

setup() {
  source_dir=$(cd "$BATS_TEST_DIRNAME/../../.." && pwd)
  bin=$BATS_TEST_TMPDIR/bin
  mkdir "$bin"
  export PATH=$bin:$PATH ARGOSY_DEPS=$BATS_TEST_TMPDIR/deps
  unset ARGOSY_MPIEXEC LIBTORCH_ROOT
}

stand_in() { # stand_in NAME BODY
  printf '#!/bin/bash\n%s\n' "$2" >"$bin/$1" && chmod +x "$bin/$1"
}

without_root() { stand_in id 'echo 1000'; }

# The site's SentencePiece, the one library that is asked for, lies in a folder of its own: pkg-config finds it there alone.
site_library() {
  mkdir -p "$BATS_TEST_TMPDIR/site/lib/pkgconfig"
  cat >"$BATS_TEST_TMPDIR/site/lib/pkgconfig/sentencepiece.pc" <<'PC'
Name: sentencepiece
Description: of the site
Version: 0.2
Libs: -L${pc_sysrootdir}/site/lib -lsentencepiece
PC
  stand_in pkg-config "[[ \"\$*\" != *sentencepiece* || \"\$PKG_CONFIG_PATH\" == *$BATS_TEST_TMPDIR/site* ]] || exit 1
    exec $(command -v pkg-config) \"\$@\""
}

libtorch_of_this_build() { sed -n 's/^LIBTORCH_ROOT:PATH=//p' "${ARGOSY_BUILD_DIR:?}/CMakeCache.txt"; }

@test "what is missing is named with its module, and how to name a folder" {
  without_root
  site_library
  run -2 "$source_dir/scripts/setup" --libtorch "$(libtorch_of_this_build)"
  [[ $output == *"apt-get install libsentencepiece-dev"$'\n'* ]]
  [[ $output == *"(modules, Spack): sentencepiece "* && $output == *CMAKE_PREFIX_PATH* ]]
}

@test "a library in CMAKE_PREFIX_PATH is found, as the build finds it" {
  without_root
  site_library
  CMAKE_PREFIX_PATH=$BATS_TEST_TMPDIR/site run -0 "$source_dir/scripts/setup" --libtorch "$(libtorch_of_this_build)"
  [[ $output == *"setup: ready" ]]
}

@test "a site's LibTorch is used from then on, and what is none is refused" {
  run -0 "$source_dir/scripts/setup" --libtorch "$(libtorch_of_this_build)"
  [ "$(readlink -f "$ARGOSY_DEPS"/libtorch-*)" = "$(readlink -f "$(libtorch_of_this_build)")" ]
  stand_in python3 'exit 1' # nothing is fetched
  run -0 "$source_dir/scripts/setup"
  mkdir "$BATS_TEST_TMPDIR/empty"
  run -2 "$source_dir/scripts/setup" --libtorch "$BATS_TEST_TMPDIR/empty"
  [[ $output == *"is not a LibTorch"* ]]
  run -2 "$source_dir/scripts/setup" --libtorch "$BATS_TEST_TMPDIR/absent"
  run -2 "$source_dir/scripts/setup" --libtorch
}

@test "the launcher is MPICH's, whatever it is called" {
  stand_in mpiexec 'echo "mpiexec (OpenRTE) 4.1.4"'
  stand_in mpiexec.hydra 'exit 127'
  stand_in mpiexec.mpich 'echo "HYDRA build details:"'
  [ "$("$source_dir/scripts/launcher")" = mpiexec.mpich ]
  stand_in mpiexec 'echo "HYDRA build details:"'
  [ "$("$source_dir/scripts/launcher")" = mpiexec ]
  [ "$(ARGOSY_MPIEXEC=/my/mpiexec "$source_dir/scripts/launcher")" = /my/mpiexec ]
  stand_in mpiexec 'echo "mpiexec (OpenRTE) 4.1.4"'
  stand_in mpiexec.mpich 'exit 127'
  stand_in srun ''
  [ "$("$source_dir/scripts/launcher")" = "srun --mpi=pmi2" ]
}

@test "the build finds the same launcher" {
  stand_in mpiexec 'echo "mpiexec (OpenRTE) 4.1.4"'
  stand_in mpiexec.hydra 'echo "HYDRA build details:"'
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(launcher NONE)' \
    "include($source_dir/scripts/cmake/ArgosyLaunch.cmake)" >"$BATS_TEST_TMPDIR/CMakeLists.txt"
  cmake -S "$BATS_TEST_TMPDIR" -B "$BATS_TEST_TMPDIR/build" >/dev/null
  grep -qx "ARGOSY_MPIEXEC:FILEPATH=$bin/mpiexec.hydra" "$BATS_TEST_TMPDIR/build/CMakeCache.txt"
}
