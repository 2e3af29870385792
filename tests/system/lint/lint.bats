#!/usr/bin/env bats
# The lint finds what it is there to find: each breach is planted in a small tree.

setup() {
  source=$(cd "$BATS_TEST_DIRNAME/../../.." && pwd)
  tree=$BATS_TEST_TMPDIR/tree
  mkdir -p "$tree/lib/core" "$tree/lib/comm" "$tree/lib/config" "$tree/lib/kernels" "$tree/lib/soup" "$tree/lib/train" "$tree/apps"
  git -C "$tree" init --quiet
  cp "$source/lib/layers.txt" "$tree/lib/"
}

plant() { # plant FILE LINE…
  local file=$tree/$1
  shift
  { [[ $file != *.hpp ]] || echo '#pragma once'; } >"$file"
  printf '%s\n' "$@" >>"$file"
}

lint() { run python3 -B "$source/scripts/lint.d/rules.py" "$tree"; }

refused() { # refused TEXT: the lint fails and says so
  lint
  [ "$status" -eq 1 ]
  [[ $output == *"$1"* ]]
}

@test "an include that points down passes" {
  plant lib/core/error.hpp
  plant lib/comm/comm.cpp '#include "core/error.hpp"'
  lint
  [ "$status" -eq 0 ] && [ -z "$output" ]
}

@test "an include that points up is refused with file and line" {
  plant lib/comm/comm.hpp
  plant lib/core/error.cpp '#include <string>' '#include "comm/comm.hpp"'
  refused 'lib/core/error.cpp:2: core may not include comm'
}

@test "a neighbour is refused unless it is listed" {
  plant lib/comm/comm.hpp
  plant lib/config/config.cpp '#include "comm/comm.hpp"'
  refused 'lib/config/config.cpp:1: config may not include comm'
  rm "$tree/lib/config/config.cpp"
  plant lib/train/loop.cpp '#include "decode/decode.hpp"'
  lint
  [ "$status" -eq 0 ]
}

@test "a folder without a layer is refused" {
  mkdir "$tree/lib/util"
  plant lib/util/misc.hpp
  refused 'lib/util is not in lib/layers.txt'
}

@test "LibTorch is refused outside its modules, also through a header of ours" {
  plant lib/soup/mean.cpp '#include <ATen/core/Tensor.h>'
  refused 'lib/soup builds without LibTorch, but this file reaches ATen/core/Tensor.h'
  plant lib/kernels/norm.hpp '#include <ATen/core/Tensor.h>'
  plant lib/soup/mean.cpp '#include "kernels/norm.hpp"'
  refused 'this file reaches kernels/norm.hpp -> ATen/core/Tensor.h'
}

@test "a config header that reaches LibTorch is refused" {
  plant lib/kernels/kernel_config.hpp '#include <ATen/core/Tensor.h>'
  refused 'configs are read on login nodes'
}

@test "a large LibTorch header is refused where another folder would pay for it" {
  mkdir "$tree/lib/model"
  plant lib/kernels/registry.hpp '#include <torch/library.h>'
  plant lib/kernels/norm.cpp '#include "kernels/registry.hpp"'
  lint
  [ "$status" -eq 0 ]
  plant lib/model/block.cpp '#include "kernels/registry.hpp"'
  refused 'kernels/registry.hpp reaches torch/library.h; headers for others include ATen/core/Tensor.h at most'
}

@test "files are opened by core/file only" {
  plant lib/soup/mean.cpp 'std::ofstream out("x");'
  refused 'lib/soup/mean.cpp:1: only core/file.hpp opens'
  rm "$tree/lib/soup/mean.cpp"
  plant lib/core/file.cpp 'int fd = ::open(path, 0);'
  lint
  [ "$status" -eq 0 ]
}

@test "the library does not end the process" {
  plant lib/soup/mean.cpp 'std::exit(1);'
  refused 'it never ends the process'
}

@test "leftovers and overlong mains are refused" {
  plant apps/soup.cpp "// TO""DO: finish"
  refused 'apps/soup.cpp:1: leftover'
  seq 121 | sed 's/^/int a/; s/$/;/' >"$tree/apps/soup.cpp"
  refused '121 lines; files here have at most 120'
}
