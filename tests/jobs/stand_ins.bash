# shellcheck shell=bash
# A tree with stand-ins for the tools and Slurm's commands, and the environment Slurm gives to a job.

make_tree() {
  unset OMP_NUM_THREADS
  source=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
  root=$BATS_TEST_TMPDIR/tree
  bin=$BATS_TEST_TMPDIR/bin
  run_dir=$root/runs/demo
  mkdir -p "$root/apps" "$root/configs" "$bin" "$run_dir"
  cp -r "$source/jobs" "$root/"
  touch "$root/configs/"{mistral_7b,mistral_7b_small_cluster}.json
  # A tool answers --print-config and --dry-run; run for real it writes $TOOL_SAYS into the exit file, passes standard input on and ends
  # with $TOOL_CODE.
  program "$root/apps/train" <<'TOOL'
case $* in
  *--print-config\ telemetry.wandb.mode\ --raw) echo "${RUN_WANDB:-off}" ;;
  *--print-config*--raw*) [ -z "${BAD_CONFIG:-}" ] && echo "$RUN_DIR" ;;
  *--print-config\ validation.sets*) echo "${SETS:-[{\"source\": \"valid\"\}]}" ;;
  *--print-config\ data.split*) echo null ;;
  *--print-tasks*) echo "${TASKS:-the model has no parts that only some tasks share}" >&2 ;;
  *--dry-run*)
    echo "plan $*" >>"$RUN_DIR/calls"
    [ -z "${BAD_PLAN:-}" ] || { echo "$BAD_PLAN" >&2 && exit 2; }
    ;;
  *)
    env >"$RUN_DIR/environment"
    if [ -n "${WAIT_FOR_USR1:-}" ]; then
      trap 'woken=1' USR1
      touch "$RUN_DIR/ready"
      while [ -z "${woken:-}" ]; do sleep 0.05; done
    fi
    if [ -n "${TOOL_SAYS:-}" ]; then echo "$TOOL_SAYS" >"$ARGOSY_EXIT_FILE"; fi
    if [ ! -t 0 ]; then cat; fi
    exit "${TOOL_CODE:-0}"
    ;;
esac
TOOL
  for tool in count preprocess soup export translate; do cp "$root/apps/train" "$root/apps/$tool"; done
  ln -s "${ARGOSY_BUILD_DIR:-$source}/apps/status" "$root/apps/status" # the real one
  program "$bin/srun" <<'SRUN'
echo "srun $*" >>"$RUN_DIR/calls"
while [[ $1 == --* ]]; do shift; done
shift 2 # env --block-signal=USR1: a blocked signal would not reach the shell below
exec "$@"
SRUN
  program "$bin/scontrol" <<'SCONTROL'
echo "scontrol $*" >>"$RUN_DIR/calls"
exit "${SCONTROL_CODE:-0}"
SCONTROL
  # Jobs are numbered from 101. REFUSED: what the words of a submission must not hold.
  program "$bin/sbatch" <<'SBATCH'
echo "sbatch $*" >>"$RUN_DIR/calls"
if [ -n "${REFUSED:-}" ] && [[ "$*" == *"$REFUSED"* ]]; then echo "sbatch: error: Requested node configuration is not available" >&2 && exit 1; fi
[[ "$*" == *--test-only* ]] && exit 0
number=$(($(cat "$RUN_DIR/number" 2>/dev/null || echo 100) + 1))
echo "$number" | tee "$RUN_DIR/number"
echo "PENDING Dependency" >"$RUN_DIR/queue.$number"
SBATCH
  # The queue is a file a job; END_TIME is that of all.
  program "$bin/squeue" <<'SQUEUE'
case $* in
  *%e*) echo "${END_TIME:-NONE}" ;;
  *)
    if [ -n "${SILENT:-}" ]; then echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2 && exit 1; fi
    cat "$RUN_DIR/queue.$3" 2>/dev/null || { echo 'slurm_load_jobs error: Invalid job id specified' >&2 && exit 1; }
    ;;
esac
SQUEUE
  program "$bin/scancel" <<'SCANCEL'
echo "scancel $*" >>"$RUN_DIR/calls"
for number; do rm -f "$RUN_DIR/queue.$number"; done
SCANCEL
  export PATH=$bin:$PATH RUN_DIR=$run_dir ARGOSY_REQUEUE_WAIT_S=0
  export SLURM_JOB_ID=42 SLURM_JOB_NAME=train16 SLURM_SUBMIT_DIR=$root SLURM_JOB_NUM_NODES=16 SLURM_NTASKS_PER_NODE=8
  export SLURM_JOB_NODELIST='node[1-16]'
}

program() { # program PATH: an executable from standard input
  { echo '#!/bin/bash' && cat; } >"$1"
  chmod +x "$1"
}

submitted() { # submitted SCRIPT ARGUMENT…: Slurm runs a spooled copy, from the folder of the submission
  local script=$1
  shift
  cp "$root/jobs/$script" "$BATS_TEST_TMPDIR/slurm_script"
  cd "$root" || return
  run bash "$BATS_TEST_TMPDIR/slurm_script" "$@" </dev/null
}
