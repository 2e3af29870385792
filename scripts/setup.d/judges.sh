# shellcheck shell=bash disable=SC2154 # deps and peer come from scripts/setup
# The judges: Python programs that tests compare Argosy with, in their own virtual environment, $deps/judges.
# Sourced by scripts/setup, after libtorch.sh.

judges_packages='ctranslate2==4.8.5 sacrebleu==2.6.0 sentencepiece==0.2.3 safetensors==0.8.0 transformers==5.24.0 wandb==0.25.1 h5py>=3.10 numpy>=1.26'
judges_alone='tensorboard==2.21.0 absl-py>=2' # its reader of event files needs no more

judges_pip() {
  "$deps/judges/bin/python" -m pip --quiet --disable-pip-version-check "$@" </dev/null ||
    fail 4 "pip could not install the judges; check the network and pip's index"
}

judges_wanted() { # prints the requirements, unless they are installed; with PyTorch or without
  local stamp=$deps/judges/.argosy-setup wanted="$judges_packages $judges_alone"
  if ((peer)); then wanted+=" torch==$libtorch_version $adapter_packages"; fi
  if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then return; fi
  if ((!peer)) && grep -qs "^$judges_packages $judges_alone" "$stamp"; then return; fi # has PyTorch as well
  echo "$wanted"
}

install_judges() {
  local stamp=$deps/judges/.argosy-setup wanted
  wanted=$(judges_wanted)
  [ -n "$wanted" ] || return 0
  echo "setup: installing the judges"
  if [ ! -x "$deps/judges/bin/python" ] || ! "$deps/judges/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$deps/judges"
    python3 -m venv "$deps/judges" || fail 4 "python3 -m venv failed for $deps/judges"
  fi
  rm -f "$stamp"
  # shellcheck disable=SC2086 # one word a requirement
  judges_pip install --only-binary=:all: $judges_packages
  # shellcheck disable=SC2086
  judges_pip install --only-binary=:all: --no-deps $judges_alone
  if ((peer)); then install_peer; fi
  echo "$wanted" >"$stamp"
}

# What `import torch` of the CUDA wheel loads on a machine without a GPU, and no more: 2.5 GB instead of 5.
peer_libraries='nvidia-cublas==13.1.* nvidia-cufft==12.* nvidia-cufile==1.15.* nvidia-curand==10.4.* nvidia-cusparse==12.*
  nvidia-nvjitlink==13.0.* nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-cudnn-cu13==9.19.0.56
  nvidia-nvshmem-cu13==3.4.5'
adapter_packages='peft==0.21.2 accelerate==1.15.0' # --no-deps: they ask for the PyTorch of an index
peer_packages='psutil filelock typing-extensions>=4.10 sympy>=1.13.3 networkx jinja2 fsspec setuptools<82'

install_peer() {
  local tag wheels=() entry
  echo "setup: installing PyTorch and the NVIDIA libraries it loads"
  tag=$("$deps/judges/bin/python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
  [ -n "${libtorch_sha256[$tag]:-}" ] || fail 2 "Argosy knows no PyTorch $libtorch_version wheel for this Python; use Python 3.10 to 3.14"
  wheels+=("$(fetch_wheel "torch==$libtorch_version" "${libtorch_sha256[$tag]}" "$tag")") || exit
  for entry in "${cuda_runtime_wheels[@]}"; do
    wheels+=("$(fetch_wheel "${entry%=*}" "${entry##*=}" "$tag")") || exit
  done
  # shellcheck disable=SC2086 # one word a requirement
  judges_pip install --only-binary=:all: --no-cache-dir --no-deps "${wheels[@]}" $peer_libraries
  # shellcheck disable=SC2086
  judges_pip install --only-binary=:all: $peer_packages
  # shellcheck disable=SC2086
  judges_pip install --only-binary=:all: --no-deps $adapter_packages
}
