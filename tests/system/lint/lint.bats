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

@test "a type of a file's own is not named as one of its headers or of core" {
  plant lib/core/clock.hpp 'class Clock {' '};'
  plant lib/comm/watch.cpp '' 'namespace {' 'using Steady = int;' '}  // namespace'
  lint
  [ "$status" -eq 0 ]
  plant lib/comm/watch.cpp '' 'namespace {' 'using Clock = int;' '}  // namespace'
  refused 'lib/comm/watch.cpp:3: lib/core/clock.hpp declares Clock too'
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

@test "printing past the context is refused in library and tools" {
  plant apps/count.cpp 'std::cout << 1;'
  refused 'apps/count.cpp:1: Context::print'
  plant apps/count.cpp 'fmt::print("{}", 1);'
  refused 'apps/count.cpp:1: Context::print'
  plant apps/count.cpp 'fmt::print(stdout, "x");' '// on stdout' 'context.print("on stdout");'
  refused 'apps/count.cpp:1: Context::print'
  [ "${#lines[@]}" = 1 ]
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

@test "a configuration that is named where people read it must be there" {
  mkdir "$tree/configs" "$tree/jobs" "$tree/tests"
  plant configs/tiny.json '{}'
  plant README.md 'apps/train configs/tiny.json'
  plant tests/own.bats 'apps/train configs/own.json'
  lint
  [ "$status" -eq 0 ]
  plant jobs/count.sh '#' '# sbatch jobs/count.sh ARGOSY_CONFIG=configs/mt.json'
  refused 'jobs/count.sh:2: there is no configs/mt.json'
}

commands() { # commands FILE…: the compile_commands.json of a build of them
  local file
  mkdir -p "$tree/build"
  touch "$tree/build/build.ninja"
  {
    echo '['
    for file; do echo "{\"directory\": \"$tree\", \"file\": \"$tree/$file\", \"command\": \"c++ -Ilib -o x.o -c $tree/$file\"}"; done | paste -sd,
    echo ']'
  } >"$tree/build/compile_commands.json"
}

units() { cd "$tree" && python3 -B "$source/scripts/lint.d/tidy_units.py" build "$@"; }

@test "clang-tidy reads a module as one unit and each program as its own, without LibTorch" {
  plant lib/core/error.cpp
  plant lib/core/file.cpp
  plant lib/train/loop.cpp '#include <torch/types.h>'
  commands lib/core/file.cpp lib/core/error.cpp lib/core/start.cu lib/train/loop.cpp apps/count.cpp apps/soup.cpp tests/unit/a.cpp
  run units
  [ "$status" -eq 0 ] && [ "${lines[*]##*/}" = '0-apps-count.cpp 1-apps-soup.cpp 2-lib-core.cpp' ]
  [ "$(grep -o '"[^"]*"' "$tree/build/tidy/2-lib-core.cpp")" = "\"$tree/lib/core/file.cpp\""$'\n'"\"$tree/lib/core/error.cpp\"" ]
  [[ $(<"$tree/build/tidy/compile_commands.json") == *"c++ -Ilib -c $tree/build/tidy/2-lib-core.cpp"* ]]
}

@test "since a revision, clang-tidy reads only where a source or header is new or different" {
  plant lib/core/error.cpp
  plant lib/comm/comm.cpp
  plant lib/soup/mean.cpp
  plant apps/count.cpp
  plant apps/soup.cpp
  commands apps/count.cpp apps/soup.cpp lib/core/error.cpp lib/comm/comm.cpp lib/soup/mean.cpp
  git -C "$tree" add lib apps && git -C "$tree" -c user.name=a -c user.email=a@b commit --quiet --message=all
  run units HEAD
  [ "$status" -eq 0 ] && [ -z "$output" ]
  plant lib/soup/mean.cpp 'int mean;'
  plant lib/comm/comm.hpp
  plant apps/soup.cpp 'int soup;'
  run units HEAD
  [ "${lines[*]##*/}" = '1-apps-soup.cpp 2-lib-comm.cpp 4-lib-soup.cpp' ]
  plant apps/app.hpp
  run units HEAD
  [ "${lines[*]##*/}" = '0-apps-count.cpp 1-apps-soup.cpp 2-lib-comm.cpp 4-lib-soup.cpp' ]
  run units nowhere
  [ "$status" -ne 0 ]
}

@test "what clang-tidy finds and its own failure are shown, its counts are not" {
  mkdir "$tree/scripts" "$tree/bin"
  cp -r "$source/scripts/lint" "$source/scripts/lint.d" "$tree/scripts/"
  printf '#!/bin/sh\n' >"$tree/scripts/setup"
  cat >"$tree/bin/clang-tidy-16" <<'TEXT'
#!/bin/sh
printf '%s\n' '12 warnings generated.' "$said" >&2
exit "$code"
TEXT
  chmod +x "$tree/scripts/setup" "$tree/bin/clang-tidy-16"
  ln -s /bin/true "$tree/bin/cmake"
  commands lib/core/error.cpp
  export PATH=$tree/bin:$PATH
  said='cannot load libclang' code=127 run "$tree/scripts/lint" tidy
  [ "$status" -eq 1 ] && [[ $output == *'cannot load libclang'*'0 passed, 1 failed' ]]
  said='' code=0 run "$tree/scripts/lint" tidy
  [ "$status" -eq 0 ] && [[ $output != *warnings* ]]
}

@test "a cast to a narrow integer is refused unless it is known" {
  plant lib/train/loop.cpp 'const int kept = static_cast<int>(config.max_checkpoints);  // static_cast<int>(in a remark)'
  refused 'lib/train/loop.cpp:1: 1 casts to narrow integers, 0 known: use narrow<T>()'
  mkdir -p "$tree/scripts/lint.d"
  plant scripts/lint.d/narrowing.txt '1 lib/train/loop.cpp: ranks'
  lint
  [ "$status" -eq 0 ]
  plant lib/train/loop.cpp 'const int rank = 0;'
  refused 'lib/train/loop.cpp has 0 casts to narrow integers, not 1'
  rm "$tree/lib/train/loop.cpp"
  refused 'lib/train/loop.cpp is not there'
}
