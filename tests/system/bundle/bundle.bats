#!/usr/bin/env bats
# scripts/bundle on machines that have nothing but glibc, another LibTorch or another MPI; scripts/gpu_check from a bundle, without a GPU.

setup_file() {
  export ROOT=${ARGOSY_SOURCE_DIR:?} BUILD=${ARGOSY_BUILD_DIR:?}
  libtorch=$(ldd "$BUILD/apps/train" | sed -nE 's/.*libtorch_cpu\.so => ([^ ]+).*/\1/p')
  LIBTORCH=$(realpath "$(dirname "$libtorch")/../..")
  export LIBTORCH
  "$ROOT/scripts/bundle" --tests --build "$BUILD" "$BATS_FILE_TMPDIR/first"
  mv "$BATS_FILE_TMPDIR/first" "$BATS_FILE_TMPDIR/a bundle"
  export BUNDLE="$BATS_FILE_TMPDIR/a bundle"
  "$BUNDLE/use" libtorch "$LIBTORCH"
}

clean() { env -i PATH=/usr/bin:/bin HOME="$BATS_TEST_TMPDIR" UCX_TLS=self,sm UCX_LOG_LEVEL=error "$@"; }

# in_root COMMAND…: in a root that holds glibc, the bundle and, at another place, LibTorch
in_root() {
  local root=$BATS_TEST_TMPDIR/root library
  if [ ! -e "$root" ]; then
    mkdir -p "$root"/{proc,sys,tmp,opt/bundle,srv/torch,lib/x86_64-linux-gnu,lib64,dev}
    cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
    for library in c m dl rt pthread util resolv; do cp -L /lib/x86_64-linux-gnu/lib$library.so.? "$root/lib/x86_64-linux-gnu/"; done
  fi
  # shellcheck disable=SC2016 # for the inner shell
  clean unshare -m bash -c 'root=$1 && mount --bind "$2" "$root/opt/bundle" && mount --bind "$3" "$root/srv/torch" &&
    mount --rbind /proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" && shift 3 &&
    exec /usr/sbin/chroot "$root" "$@"' sh "$root" "$BUNDLE" "$LIBTORCH" "$@"
}

@test "programs run where nothing but glibc is there, with LibTorch at another path" {
  unshare -m true || skip "this user may not make another root"
  ln -sfn /srv/torch/torch/lib "$BUNDLE/lib/torch"
  for tool in "$BUNDLE"/apps/*; do
    run in_root "/opt/bundle/apps/${tool##*/}" --version
    [ "$status" -eq 0 ]
    [[ $output == *"argosy 0."* ]]
  done
  cp "$ROOT/tests/support/text/kjv_rv.tsv" "$BATS_TEST_TMPDIR/root/tmp/"
  run in_root /opt/bundle/apps/count /tmp/kjv_rv.tsv
  [ "$status" -eq 0 ]
  [[ $output == *'"status":"ok"'* ]]
  "$BUNDLE/use" libtorch "$LIBTORCH"
}

@test "its launcher starts ranks, and no library comes from this machine but glibc" {
  run clean "$BUNDLE/bin/mpiexec" -n 2 "$BUNDLE/apps/count" "$ROOT/tests/support/text/cmudict.tsv"
  [ "$status" -eq 0 ]
  run clean env LD_DEBUG=libs "$BUNDLE/apps/train" --version
  [ "$status" -eq 0 ]
  loaded=$(sed -nE 's/.*calling init: (.*)/\1/p' <<<"$output" | sort -u)
  [ "$(grep -c . <<<"$loaded")" -gt 20 ]
  while read -r library; do
    case $library in
      "$BUNDLE"/* | "$LIBTORCH"/* | */lib*.so.[0-6] | */ld-linux*) ;;
      *) echo "$library" && return 1 ;;
    esac
    [[ ! $library =~ ^/(usr/)?lib.*/lib(stdc|gcc_s|z\.|mpi|hdf5) ]]
  done <<<"$loaded"
}

@test "use mpi takes the MPI of the site by its file, and refuses one with another ABI" {
  mkdir "$BATS_TEST_TMPDIR/site"
  cp -L "$BUNDLE/lib/mpi/own.so.12" "$BATS_TEST_TMPDIR/site/libmpi.so.12"
  touch "$BATS_TEST_TMPDIR/site/libmpi.so.40"
  run "$BUNDLE/use" mpi "$BATS_TEST_TMPDIR/site/libmpi.so.40"
  [ "$status" -eq 2 ]
  [[ $output == *"has not the ABI of MPICH"* ]]
  run "$BUNDLE/use" mpi "$BATS_TEST_TMPDIR/site/none/libmpi.so.12"
  [ "$status" -eq 2 ]
  "$BUNDLE/use" mpi "$BATS_TEST_TMPDIR/site/libmpi.so.12"
  run clean env LD_DEBUG=libs "$BUNDLE/apps/count" "$ROOT/tests/support/text/cmudict.tsv"
  [ "$status" -eq 0 ]
  run readlink -f "$BUNDLE/lib/mpi/libmpich.so.12"
  [ "$output" = "$BATS_TEST_TMPDIR/site/libmpi.so.12" ]
  "$BUNDLE/use" mpi own
}

@test "an existing folder and a build that is not there are refused" {
  run "$ROOT/scripts/bundle" --build "$BUILD" "$BUNDLE"
  [ "$status" -eq 2 ]
  [[ $output == *" exists; remove it"* ]]
  run "$ROOT/scripts/bundle" --build /nowhere "$BATS_TEST_TMPDIR/new"
  [ "$status" -eq 2 ]
  [[ $output == *"/nowhere/apps/train does not exist"* ]]
  [ ! -e "$BATS_TEST_TMPDIR/new" ]
}

# parts FILE: a line `STATUS PART` for each part
parts() { python3 -c 'import json, sys; print("\n".join(p["status"] + " " + p["part"] for p in json.load(open(sys.argv[1]))["parts"]))' "$1"; }

@test "gpu_check without a GPU runs what it can and names the rest" {
  if compgen -G '/dev/nvidia[0-9]*' >/dev/null; then skip "this machine has a GPU"; fi
  run clean "$BUNDLE/scripts/gpu_check" --out "$BATS_TEST_TMPDIR/check.json"
  [ "$status" -eq 77 ]
  run parts "$BATS_TEST_TMPDIR/check.json"
  [[ $output == *"passed programs start"*"passed training on the CPU"*"cannot_run tests unit_plugin_gpu"* ]]
  [[ $output == *"cannot_run tests mpi_train_gpu"*"cannot_run kernel benchmark"*"cannot_run training of 300 M parameters on 1 GPU"* ]]
  [[ $output != *failed* && $output != *timed_out* ]]
  python3 - "$BATS_TEST_TMPDIR/check.json" <<'PY'
import json, sys
check = json.load(open(sys.argv[1]))
assert check["complete"] and check["from"] == "bundle" and check["gpus"] == [] and check["seconds"] < 300, check
assert all(part["why"] for part in check["parts"] if part["status"] == "cannot_run"), check["parts"]
cpu = next(part for part in check["parts"] if part["part"] == "training on the CPU")
assert cpu["figures"]["result"]["status"] == "ok" and cpu["figures"]["step_ms"] > 0, cpu
PY
}

@test "gpu_check refuses a folder that another one uses, and words that it does not know" {
  mkdir "$BATS_TEST_TMPDIR/check.work"
  exec 8>"$BATS_TEST_TMPDIR/check.work/lock"
  flock 8
  run clean "$BUNDLE/scripts/gpu_check" --out "$BATS_TEST_TMPDIR/check.json"
  exec 8>&-
  [ "$status" -eq 2 ]
  [[ $output == *"another gpu_check runs in"* ]]
  [ ! -e "$BATS_TEST_TMPDIR/check.json" ]
  for words in --seconds=5 '--seconds 0' '--out'; do
    # shellcheck disable=SC2086 # two words
    run clean "$BUNDLE/scripts/gpu_check" $words
    [ "$status" -eq 2 ]
  done
}

@test "gpu_check names a part that crashes and one that hangs, and goes on" {
  cp -r "$BUNDLE" "$BATS_TEST_TMPDIR/broken"
  # shellcheck disable=SC2016 # for the program that is written
  printf '#!/bin/sh\necho "so far \\"well\\""\nkill -SEGV $$\n' >"$BATS_TEST_TMPDIR/broken/tests/unit/unit_plugin_gpu"
  printf '#!/bin/sh\ntrap "" TERM\nwhile :; do sleep 1; done\n' >"$BATS_TEST_TMPDIR/broken/tests/bench/gpu"
  run clean "$BATS_TEST_TMPDIR/broken/scripts/gpu_check" --out "$BATS_TEST_TMPDIR/check.json" --seconds 45
  [ "$status" -eq 1 ]
  run parts "$BATS_TEST_TMPDIR/check.json"
  [[ $output == *"failed tests unit_plugin_gpu"*"cannot_run tests unit_train_gpu"*"timed_out kernel benchmark"*"cannot_run training of 300"* ]]
}
