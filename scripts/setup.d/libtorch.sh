# shellcheck shell=bash disable=SC2154 # deps, cuda and libtorch come from scripts/setup
# LibTorch from the PyPI wheel: C++ libraries and headers only, under $deps/libtorch-<version>/{torch,nvidia}.
# The wheels for all Pythons hold the same C++ libraries. The wheel for this machine's Python is used, which `--peer` needs, too.
# Sourced by scripts/setup.

libtorch_version=2.11.0
declare -A libtorch_sha256=(
  [310]=1b32ceda909818a03b112006709b02be1877240c31750a8d9c6b7bf5f2d8a6e5
  [311]=7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
  [312]=0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756
  [313]=cc89b9b173d9adfab59fd227f0ab5e5516d9a52b658ae41d64e59d2e55a418db
  [314]=4dc8b3809469b6c30b411bb8c4cad3828efd26236153d9beb6a3ec500f211a60
)
cuda_runtime_wheels=(
  nvidia-cuda-runtime==13.0.96=7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
  nvidia-cuda-cupti==13.0.85=4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
)

host_python() { # prints the wheel tag: this machine's Python, or 311 if there is no wheel for it
  local tag
  tag=$(python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')
  [ -n "${libtorch_sha256[$tag]:-}" ] || tag=311
  echo "$tag"
}

# fetch_wheel REQUIREMENT SHA256 PYTHON_TAG: downloads the wheel unless it is already here, checks it, and prints its path.
fetch_wheel() {
  local requirement=$1 sha256=$2 tag=$3 wheels=$deps/wheels wheel partial
  local platforms=(--platform=manylinux{_2_28,_2_27,_2_25,_2_17,2014}_x86_64)
  mkdir -p "$wheels"
  for wheel in "$wheels"/*.whl; do
    if [ -e "$wheel.sha256" ] && [ "$(cat "$wheel.sha256")" = "$sha256" ]; then
      echo "$wheel"
      return 0
    fi
  done
  partial=$(mktemp -d "$wheels/.partial.XXXXXX")
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
    --python-version "${tag:0:1}.${tag:1}" "${platforms[@]}" --dest "$partial" "$requirement" >"$partial/log" 2>&1 </dev/null; then
    tail -n 5 "$partial/log" >&2
    rm -rf "$partial"
    fail 4 "pip could not download $requirement (its last lines are above); check the network and pip's index"
  fi
  wheel=$(find "$partial" -name '*.whl')
  if ! echo "$sha256  $wheel" | sha256sum --check --status; then
    rm -rf "$partial"
    fail 4 "the downloaded wheel of $requirement is not the pinned one (SHA-256 differs); nothing was installed"
  fi
  mv "$wheel" "$wheels/"
  wheel=$wheels/${wheel##*/}
  echo "$sha256" >"$wheel.sha256"
  rm -rf "$partial"
  echo "$wheel"
}

libtorch_flavor() { ((cuda)) && echo cuda || echo cpu; }

has_libtorch() {
  local root=$deps/libtorch-$libtorch_version
  [ -n "${LIBTORCH_ROOT:-}$libtorch" ] || { [ -L "$root" ] && [ -d "$root" ]; } || grep -qsx -e "$(libtorch_flavor)" -e cuda "$root/.argosy-setup"
}

# use_libtorch DIR: a site's own LibTorch, by a link in the place of the one that would be fetched.
use_libtorch() {
  local root=$deps/libtorch-$libtorch_version build
  if [ -e "$root" ] && [ ! -L "$root" ]; then fail 2 "$root holds a downloaded LibTorch; remove it to use $1"; fi
  build=$(mktemp -d)
  if ! cmake -S scripts/setup.d/libraries -B "$build" -DARGOSY_MISSING_FILE="$build/missing" -DARGOSY_TORCH=ON -DLIBTORCH_ROOT="$1" \
    >"$build/log" 2>&1; then
    tail -n 15 "$build/log" >&2
    rm -rf "$build"
    fail 2 "$1 is not a LibTorch $libtorch_version or newer; the folder must hold torch/, or include/ and lib/"
  fi
  rm -rf "$build"
  ln -sfn "$1" "$root" || fail 4 "cannot write to $deps; set ARGOSY_DEPS to a folder that you may write to"
}

install_libtorch() {
  if [ -n "${LIBTORCH_ROOT:-}" ]; then
    echo "setup: using the LibTorch in $LIBTORCH_ROOT"
    return 0
  fi
  local root=$deps/libtorch-$libtorch_version flavor wheels=() entry tag staging
  flavor=$(libtorch_flavor)
  # The stamp is the last thing put into the staging folder, which then takes its place by one rename.
  if has_libtorch; then return 0; fi
  if [ -L "$root" ]; then rm "$root"; fi # a link whose target is gone
  [ "$(uname -m)" = x86_64 ] || fail 2 "Argosy knows no LibTorch wheel for $(uname -m); name an installed LibTorch with --libtorch DIR"

  echo "setup: downloading LibTorch $libtorch_version"
  tag=$(host_python)
  wheels+=("$(fetch_wheel "torch==$libtorch_version" "${libtorch_sha256[$tag]}" "$tag")") || exit
  for entry in "${cuda_runtime_wheels[@]}"; do
    wheels+=("$(fetch_wheel "${entry%=*}" "${entry##*=}" "$tag")") || exit
  done
  find "$deps" -maxdepth 1 -name ".libtorch-$libtorch_version.*" -exec rm -rf {} + # of an interrupted run
  staging=$(mktemp -d "$deps/.libtorch-$libtorch_version.XXXXXX")
  python3 scripts/setup.d/unpack_wheels.py "$staging" "$flavor" "${wheels[@]}" || fail 4 "could not unpack LibTorch into $staging"
  if ((cuda)); then
    echo "setup: downloading the NVIDIA libraries"
    # shellcheck disable=SC2046 # one word a requirement
    python3 -m pip install --quiet --disable-pip-version-check --only-binary=:all: --target "$staging/pip" \
      $(python3 scripts/setup.d/unpack_wheels.py --nvidia-requirements "${wheels[0]}") </dev/null ||
      fail 4 "pip could not install the NVIDIA libraries; check the network and the disk (3 GB)"
    cp -a "$staging/pip/nvidia/." "$staging/nvidia/"
    rm -rf "$staging/pip"
  fi
  echo "$flavor" >"$staging/.argosy-setup"
  chmod 755 "$staging"
  sync -f "$staging"
  if [ -e "$root" ]; then mv "$root" "$staging.old"; fi
  mv "$staging" "$root"
  rm -rf "$staging.old"
}
