# shellcheck shell=bash disable=SC2154 # deps and judges come from scripts/setup
# Installs what only tests need, or says what will be skipped. Sourced by scripts/setup, after judges.sh.

# probe               what is skipped without it
test_needs='
cmd:bats              all tests of scripts and most of whole tools
cmd:python3           tests that read results with Python (most of whole tools), the quickstart, lint
cmd:chromium          the page of scripts/report in a browser
cmd:h5dump            comparisons of checkpoints with HDF5'\''s own tools
cmd:mkfs.ext4         full disks of ext4
cmd:tc                emulated nodes
cmd:slurmctld         jobs under a real Slurm
cmd:slurmd            jobs under a real Slurm
cmd:sbatch            jobs under a real Slurm
cmd:munged            jobs under a real Slurm
judges:               comparisons with CTranslate2, sacreBLEU, h5py, wandb and TensorBoard
peer:                 comparisons with transformers (scripts/setup --peer installs PyTorch)
root:                 jobs under a real Slurm
root:                 full disks of ext4
namespaces:           full disks, emulated nodes'

# tests_that_skip: prints "WHY: TESTS" for each thing that tests need and that this machine lacks.
tests_that_skip() {
  local probe what
  while read -r probe what; do
    case $probe in
      '') ;;
      judges:) [ -x "$deps/judges/bin/python" ] || echo "no judges in $deps: $what" ;;
      peer:) compgen -G "$deps/judges/lib/python3*/site-packages/torch" >/dev/null || echo "no PyTorch in $deps: $what" ;;
      root:) [ "$(id -u)" -eq 0 ] || echo "not root: $what" ;;
      namespaces:) [ "$(id -u)" -eq 0 ] || unshare --user --map-root-user --mount true 2>/dev/null ||
        echo "no user name spaces: $what" ;;
      *) PATH=$PATH:/usr/sbin:/sbin present "$probe" || echo "no ${probe#*:}: $what" ;;
    esac
  done <<<"$test_needs"
}

install_for_tests() {
  local skipped
  if may_install && [ -n "$(missing_packages "$packages_judges")$(judges_wanted)" ]; then
    # In a shell of its own: without network the other tests still run.
    (judges=1 install_packages && install_judges) || echo "setup: some packages that tests need could not be installed (the reason is above)" >&2
  fi
  skipped=$(tests_that_skip | awk -F ': ' '{ if ($2 in why) why[$2] = why[$2] ", " $1; else { why[$2] = $1; what[++n] = $2 } }
    END { for (i = 1; i <= n; ++i) print why[what[i]] ": " what[i] }')
  [ -n "$skipped" ] || return 0
  echo "setup: tests will be skipped; as root on Debian 12, scripts/setup --tests installs what they need"
  echo "  ${skipped//$'\n'/$'\n'  }"
}
