# shellcheck shell=bash disable=SC2154 # deps and peer come from scripts/setup
# The Python programs that tests compare ours with, in a virtual environment of their own: $deps/judges.
# Sourced by scripts/setup, after libtorch.sh.

judges_packages='ctranslate2==4.8.5 sacrebleu==2.6.0 sentencepiece==0.2.3 safetensors==0.8.0 h5py>=3.10 numpy>=1.26'

judges_pip() {
  "$deps/judges/bin/python" -m pip --quiet --disable-pip-version-check "$@" </dev/null ||
    fail 4 "pip could not install the judges; check the network and pip's index"
}

install_judges() {
  local stamp=$deps/judges/.argosy-setup wanted=$judges_packages
  if ((peer)); then wanted+=" torch==$libtorch_version"; fi
  if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then return 0; fi
  if ((!peer)) && grep -qs "^$judges_packages" "$stamp"; then return 0; fi # has PyTorch as well

  echo "setup: installing the judges"
  if [ ! -x "$deps/judges/bin/python" ] || ! "$deps/judges/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$deps/judges"
    python3 -m venv "$deps/judges" || fail 4 "python3 -m venv failed for $deps/judges"
  fi
  rm -f "$stamp"
  # shellcheck disable=SC2086 # one word a requirement
  judges_pip install --only-binary=:all: $judges_packages
  if ((peer)); then install_peer; fi
  echo "$wanted" >"$stamp"
}

install_peer() {
  local tag
  echo "setup: installing PyTorch and the NVIDIA libraries it loads"
  tag=$("$deps/judges/bin/python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
  [ -n "${libtorch_sha256[$tag]:-}" ] || fail 2 "no PyTorch $libtorch_version wheel is pinned for this Python; use 3.10 to 3.14"
  fetch_wheel "torch==$libtorch_version" "${libtorch_sha256[$tag]}" "$tag" >"$deps/judges/.torch-wheel" || exit
  judges_pip install --only-binary=:all: "$(cat "$deps/judges/.torch-wheel")"
}
