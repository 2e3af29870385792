# shellcheck shell=bash disable=SC2154 # judges, lint and fuzz come from scripts/setup
# Debian packages, each with a probe that tells whether it is installed, and its name as an environment module or Spack package.
# Sourced by scripts/setup.

# package               probe                        module/Spack name
packages_build='
git                     cmd:git                      git
cmake                   cmd:cmake                    cmake@3.25:
ninja-build             cmd:ninja                    ninja
g++                     cmd:g++                      gcc@12:
pkg-config              cmd:pkg-config               pkgconf
mpich                   runs:scripts/launcher        mpich@4:
libmpich-dev            pc:mpich                     mpich@4:
libhdf5-dev             pc:hdf5-serial,hdf5          hdf5~mpi
libboost1.81-dev        header:boost/describe.hpp    boost@1.81:+json
libboost-json1.81-dev   lib:boost_json               boost@1.81:+json
libcli11-dev            header:CLI/CLI.hpp           cli11
libfmt-dev              pc:fmt                       fmt@9:
libspdlog-dev           pc:spdlog                    spdlog~header_only+fmt_external
libsentencepiece-dev    pc:sentencepiece             sentencepiece
libicu-dev              pc:icu-i18n                  icu4c
libxxhash-dev           pc:libxxhash                 xxhash
zlib1g-dev              pc:zlib                      zlib
libzstd-dev             pc:libzstd                   zstd
libssl-dev              pc:libcrypto                 openssl
librandom123-dev        header:Random123/philox.h    random123
libgtest-dev            pc:gtest                     googletest+gmock
libgmock-dev            pc:gmock                     googletest+gmock
libbenchmark-dev        pc:benchmark                 benchmark'
packages_pip='
python3                 cmd:python3                  python@3.10:3.14
python3-pip             py:pip                       py-pip'
packages_speed='
ccache                  cmd:ccache                   ccache
mold                    cmd:mold                     mold'
packages_judges='
bats                    cmd:bats                     bats
chromium                cmd:chromium                 chromium
e2fsprogs               cmd:mkfs.ext4                e2fsprogs
iproute2                cmd:tc                       iproute2
procps                  cmd:pgrep                    procps
python3-venv            py:ensurepip                 python@3.10:3.14
hdf5-tools              cmd:h5dump                   hdf5+tools
slurmctld               cmd:slurmctld                slurm@22.05:
slurmd                  cmd:slurmd                   slurm@22.05:
slurm-client            cmd:sbatch                   slurm@22.05:
munge                   cmd:munged                   munge'
packages_fuzz='
clang-16                cmd:clang++-16               llvm@16
libclang-rt-16-dev      fuzzer:clang++-16            llvm@16+compiler-rt'
packages_lint='
clang-format            cmd:clang-format             llvm@14
clang-tidy-16           cmd:clang-tidy-16            llvm@16
shellcheck              cmd:shellcheck               shellcheck
shfmt                   cmd:shfmt                    sh'

has_header() { g++ -x c++ -E -o /dev/null - <<<"#if !__has_include(<$1>)"$'\n#error\n#endif' 2>/dev/null; }
has_library() { g++ -shared -o /dev/null "-l$1" 2>/dev/null; }

has_fuzzer() {
  "$1" -x c++ -fsanitize=fuzzer,address -o /dev/null - <<<'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' 2>/dev/null
}

present() { # present KIND:NAME[,NAME…]: any of the names will do
  local kind=${1%%:*} name
  for name in $(tr , ' ' <<<"${1#*:}"); do
    case $kind in
      cmd) command -v "$name" >/dev/null && return 0 ;;
      pc) pkg-config --exists "$name" 2>/dev/null && return 0 ;;
      py) python3 -c "import $name" 2>/dev/null && return 0 ;;
      header) has_header "$name" && return 0 ;;
      lib) has_library "$name" && return 0 ;;
      fuzzer) has_fuzzer "$name" && return 0 ;;
      runs) "$name" >/dev/null 2>&1 && return 0 ;;
    esac
  done
  return 1
}

# missing_packages TABLE: prints the lines whose probe finds nothing.
missing_packages() {
  local package probe site
  while read -r package probe site; do
    [ -z "$package" ] || present "$probe" || echo "$package $site"
  done <<<"$1"
}

# not_found_by_cmake TABLE_LINES: prints the lines that CMake does not find either. The probes above do not search CMAKE_PREFIX_PATH and
# PKG_CONFIG_PATH, which name the libraries of a site.
not_found_by_cmake() {
  local folder package site
  folder=$(mktemp -d)
  if ! cmake -S scripts/setup.d/libraries -B "$folder" -DARGOSY_MISSING_FILE="$folder/missing" >/dev/null 2>&1; then
    echo "$1" # no compiler, or no pkg-config
  else
    while read -r package site; do
      case $package in
        *-dev) # Boost and GoogleTest are two packages each on Debian, and one to CMake
          local known=${package/#libboost1.81-dev/libboost-json1.81-dev}
          if ! grep -qx "${known/#libgtest-dev/libgmock-dev}" "$folder/missing"; then continue; fi
          ;;
      esac
      echo "$package $site"
    done <<<"$1"
  fi
  rm -rf "$folder"
}

names_of() { awk '{ print $1 }' <<<"$1" | paste -sd ' ' -; }

may_install() { command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; }

install_packages() {
  local wanted='' optional=$packages_speed missing extra
  # pip downloads only LibTorch and the judges.
  if ((judges)) || ! has_libtorch; then wanted+=$packages_pip; fi
  if ((judges)); then wanted+=$packages_judges; fi
  if ((lint)); then wanted+=$packages_lint; fi
  if ((fuzz)); then wanted+=$packages_fuzz; fi
  missing=$(missing_packages "$packages_build")
  if [ -n "$missing" ] && command -v cmake >/dev/null; then missing=$(not_found_by_cmake "$missing"); fi
  # CMake looks only for libraries of the build. For all other packages, the probe decides.
  missing=$(grep . <<<"$missing"$'\n'"$(missing_packages "$wanted")" || true)
  extra=$(missing_packages "$optional")
  [ -n "$missing$extra" ] || return 0

  if ! may_install; then
    [ -n "$missing" ] || return 0 # the compiler cache and the linker only save time
    {
      echo "setup: packages are missing; installing them needs root and apt-get (Debian 12)"
      echo "  ask an administrator for: apt-get install $(names_of "$missing")"
      echo "  or load or build (modules, Spack): $(awk '{ print $2 }' <<<"$missing" | sort -u | tr '\n' ' ')"
      echo "  or name their folders: export CMAKE_PREFIX_PATH and PKG_CONFIG_PATH (README.md, Set-up without root)"
    } >&2
    exit 2
  fi
  echo "setup: installing $(names_of "$missing"$'\n'"$extra")"
  apt_get -q update
  # shellcheck disable=SC2046 # one word a package
  apt_get -q install --yes --no-install-recommends --no-remove $(names_of "$missing"$'\n'"$extra")
  missing=$(missing_packages "$packages_build$wanted" | grep -Fxf <(echo "$missing") || true)
  [ -z "$missing" ] || fail 2 "these packages are installed, but what they provide is not found: $(names_of "$missing"); scripts/setup installs packages for Debian 12 only"
}

apt_get() {
  local log
  log=$(mktemp)
  if ! DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600 "$@" </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail 4 "apt-get ${*: -1} failed (its last lines are above); check the package sources in /etc/apt"
  fi
  rm -f "$log"
}
