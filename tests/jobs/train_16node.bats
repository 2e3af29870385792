#!/usr/bin/env bats
# jobs/train_16node.sh with stand-ins for Slurm and apps/train: every row of the verdict table, restarts, signals, bad input.

# shellcheck disable=SC2154 # make_tree assigns them
bats_require_minimum_version 1.5.0
load stand_ins

setup() { make_tree; }

job() { submitted train_16node.sh "$@"; }

not_requeued() { if requeued; then return 1; fi; }
requeued() { grep -q '^scontrol requeue 42$' "$run_dir/calls"; }

@test "a finished run ends with 0 and is not requeued" {
  TOOL_SAYS='0 100' job
  [ "$status" -eq 0 ]
  not_requeued
}

@test "the launch line is the site's and the world is 128 ranks" {
  job
  grep -qx "srun --mpi=pmi2 --kill-on-bad-exit=1 env --block-signal=USR1 $root/apps/train $root/configs/mistral_7b.json" "$run_dir/calls"
  grep -qx ARGOSY_EXPECT_RANKS=128 "$run_dir/environment"
  grep -qx ARGOSY_EXPECT_NODES=16 "$run_dir/environment"
  grep -qx OMP_NUM_THREADS=1 "$run_dir/environment"
  grep -qx OMP_WAIT_POLICY=passive "$run_dir/environment"
  grep -qx "ARGOSY_EXIT_FILE=$run_dir/exit.42.0" "$run_dir/environment"
}

@test "options of sbatch and environment shrink the job" {
  touch "$root/configs/tiny.json"
  SLURM_NTASKS=4 ARGOSY_CONFIG=configs/tiny.json OMP_NUM_THREADS=3 job
  grep -qx ARGOSY_EXPECT_RANKS=4 "$run_dir/environment"
  grep -qx OMP_NUM_THREADS=3 "$run_dir/environment"
  grep -q "apps/train configs/tiny.json$" "$run_dir/calls"
}

@test "words after the script go to the tool" {
  job --set seed=2
  grep -q "apps/train $root/configs/mistral_7b.json --set seed=2$" "$run_dir/calls"
}

@test "75 is requeued" {
  TOOL_SAYS='75 12' TOOL_CODE=75 job
  [ "$status" -eq 75 ]
  requeued
}

@test "75 stays 75 when Slurm refuses to requeue" {
  TOOL_SAYS='75 12' SCONTROL_CODE=1 job
  [ "$status" -eq 75 ]
}

@test "the exit file is believed before the launcher" {
  TOOL_SAYS='75 12' TOOL_CODE=143 job
  [ "$status" -eq 75 ]
  requeued
}

@test "without an exit file the launcher's code counts" {
  TOOL_CODE=139 job
  [ "$status" -eq 139 ]
  not_requeued
}

@test "a launcher that fails or kills its ranks, without an exit file, counts as a lost rank" {
  for code in 1 137 143; do
    rm -f "$run_dir/"*
    TOOL_CODE=$code job
    [ "$status" -eq 5 ]
    [[ $output == *"srun ended with $code before"* ]]
    requeued
    for restart in 1 2; do SLURM_RESTART_COUNT=$restart TOOL_CODE=$code job; done
    [ "$(grep -c '^scontrol requeue' "$run_dir/calls")" = 2 ]
  done
}

@test "2, 3, 4, 6 and 70 are never requeued" {
  for code in 2 3 4 6 70; do
    TOOL_SAYS="$code 12" TOOL_CODE=$code job
    [ "$status" -eq "$code" ]
    not_requeued
  done
}

restarted() { # restarted COUNT SAYS: the job's start of that number
  rm -f "$run_dir/calls"
  SLURM_RESTART_COUNT=$1 TOOL_SAYS=$2 TOOL_CODE=${2%% *} job
}

@test "5 is requeued twice without a newer commit, not a third time, and names the nodes" {
  restarted 0 '5 12'
  requeued
  [[ $output == *'node[1-16]'* ]]
  restarted 1 '5 12'
  requeued
  restarted 2 '5 12'
  [ "$status" -eq 5 ]
  not_requeued
}

@test "three stops in a row at one step end with 70" {
  mkdir -p "$run_dir/checkpoints/000000012"
  restarted 0 '75 12'
  requeued
  restarted 1 '75 12'
  requeued
  restarted 2 '75 12'
  [ "$status" -eq 70 ]
  [[ $output == *'3 times in a row at step 12'*'--time'* ]]
  [ "$(cat "$run_dir/exit.42.2")" = '70 12' ]
  not_requeued
}

@test "a newer commit starts the count again, also a permanent one" {
  for restart in 0 1; do restarted $restart '5 12'; done
  mkdir -p "$run_dir/export/000000020"
  for restart in 2 3; do restarted $restart '5 21'; done
  requeued
  restarted 4 '5 21'
  not_requeued
}

@test "what is no committed checkpoint is no progress" {
  for restart in 0 1 2; do
    mkdir -p "$run_dir/checkpoints/.tmp-00000001$restart-ab" "$run_dir/checkpoints/00000001$restart.bad"
    restarted $restart '75 12'
  done
  [ "$status" -eq 70 ]
}

@test "a job that Slurm itself starts again and again, killed each time, ends with 70" {
  for restart in 0 1 2; do restarted $restart '137 0'; done # no requeue of ours
  restarted 3 '0 1'
  [ "$status" -eq 70 ]
  [[ $output == *'3 starts in a row'*'step 0'* ]]
  [ ! -e "$run_dir/calls" ] # nothing was launched
  restarted 0 '0 1'         # another cluster's job of the same number
  [ "$status" -eq 0 ]
}

@test "all starts of a job give the same words to the tool, and the same name to what they ask for" {
  request() { sed -n 's/^ARGOSY_REQUEST=//p' "$run_dir/environment"; }
  words=(--resume some/soup --from-scratch=true --set seed=2 --abandon-newer)
  mkdir -p "$run_dir/checkpoints/000000007" # of an earlier run
  job "${words[@]}"
  first=$(request)
  [[ $first == slurm.42.* ]]
  sleep 1.1 # a second start is at another time
  mkdir -p "$run_dir/checkpoints/000000012"
  SLURM_RESTART_COUNT=1 job "${words[@]}"
  [ "$(grep -c "mistral_7b.json ${words[*]}$" "$run_dir/calls")" = 2 ]
  [ "$(request)" = "$first" ]
  job "${words[@]}" # another cluster's job of this number
  [ "$(request)" != "$first" ]
}

@test "a stop that a user asked for is not requeued" {
  TOOL_SAYS='75 12 stop_file' TOOL_CODE=75 job
  [ "$status" -eq 75 ]
  not_requeued
  [[ $output == *'stop.file'*'submit again'* ]]
}

@test "what stands in files and variables is never run" {
  # shellcheck disable=SC2016 # not for this shell
  evil="PATH[\$(touch\${IFS}$root/hacked)]"
  job
  printf '%s\n' "$evil" "$evil 7" "12 $evil" >"$run_dir/starts.42"
  echo "$evil 1" >"$run_dir/exit.42.1"
  SLURM_RESTART_COUNT=1 TOOL_SAYS="$evil 1" TOOL_CODE=9 job
  [ ! -e "$root/hacked" ]
  [ "$status" -eq 9 ] # the launcher's: an exit file that says nothing is not believed
  [[ $output == *'exit.42.1: not an exit file'* ]]
  for name in SLURM_JOB_ID SLURM_RESTART_COUNT SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_JOB_NUM_NODES; do
    TOOL_SAYS="0 1" run env "$name=$evil" bash "$BATS_TEST_TMPDIR/slurm_script" </dev/null
    [ "$status" -eq 2 ]
  done
  SLURM_JOB_END_TIME=$evil job
  run ! grep -q ARGOSY_DEADLINE "$run_dir/environment"
  [ ! -e "$root/hacked" ]
}

@test "any name of a run directory is one" {
  # shellcheck disable=SC2016 # a name
  for name in "$root/runs/a  \"b\" \$(touch hacked)" "$root/runs/ü"$'\n' "-dash"; do
    mkdir -p -- "$root/runs" "$name"
    (cd "$root" && mkdir -p -- "$name")
    RUN_DIR=$name TOOL_SAYS='0 3' job
    [ "$status" -eq 0 ]
    cd "$root"
    [ "$(cat -- "./${name#"$root/"}/exit.42.0")" = '0 3' ]
  done
  [ ! -e "$root/hacked" ]
}

@test "a configuration that is a word is taken where sbatch exports nothing, and none is guessed" {
  touch "$root/configs/"{demo,other}.json
  export SLURM_EXPORT_ENV=NONE
  job
  [ "$status" -eq 2 ]
  [[ $output == *'SBATCH_EXPORT=NONE'*'ARGOSY_CONFIG='* ]]
  [ ! -e "$run_dir/calls" ]
  job ARGOSY_ROOT="$root" ARGOSY_CONFIG='configs/demo.json' OMP_NUM_THREADS=7 --set seed=2
  [ "$status" -eq 0 ]
  grep -q "apps/train configs/demo.json --set seed=2$" "$run_dir/calls"
  grep -qx SLURM_EXPORT_ENV=ALL "$run_dir/environment" # for srun
  grep -qx OMP_NUM_THREADS=7 "$run_dir/environment"
  ARGOSY_CONFIG=configs/other.json job ARGOSY_CONFIG='configs/demo.json' # the word counts
  tail -n 1 "$run_dir/calls" | grep -q "apps/train configs/demo.json$"
  job ARGOSY_CONFIG=configs/demo.json ARGOSY_ROOT=/elsewhere
  [ "$status" -eq 2 ]
  [[ $output == *'ARGOSY_ROOT=/elsewhere must be the first argument'* ]]
  job ARGOSY_CONFG=configs/demo.json
  [ "$status" -eq 2 ]
  [[ $output == *'unknown variable ARGOSY_CONFG'* ]]
}

@test "srun is told of the processors a rank has" {
  SLURM_CPUS_PER_TASK=6 job
  grep -qx SRUN_CPUS_PER_TASK=6 "$run_dir/environment"
  grep -qx OMP_NUM_THREADS=6 "$run_dir/environment"
}

@test "what the job that called sbatch was told does not hold here" {
  ARGOSY_DEADLINE=1 ARGOSY_EXPECT_RANKS=7 SLURM_RESTART_COUNT=5 job
  [ "$status" -eq 0 ]
  run ! grep -q ARGOSY_DEADLINE "$run_dir/environment"
  grep -qx "ARGOSY_EXIT_FILE=$run_dir/exit.42.0" "$run_dir/environment"
  grep -qx SLURM_RESTART_COUNT=0 "$run_dir/environment"
}

@test "without apps/status one sentence says what to do" {
  rm "$root/apps/status"
  job
  [ "$status" -eq 2 ]
  [[ $output == *"$root/apps/status does not exist"* ]]
  [ ! -e "$run_dir/calls" ]
}

@test "a controller that is away is asked again" {
  program "$bin/scontrol" <<'SCONTROL'
echo "scontrol $*" >>"$RUN_DIR/calls"
[ "$(grep -c scontrol "$RUN_DIR/calls")" = 3 ] || { echo 'Unable to contact slurm controller (connect failure)' && exit 1; }
SCONTROL
  TOOL_SAYS='75 12' job
  [ "$(grep -c 'scontrol requeue 42' "$run_dir/calls")" = 3 ]
}

@test "the exit file of another job of this number is not believed" {
  echo '0 100' >"$run_dir/exit.42.0"
  TOOL_CODE=139 job
  [ "$status" -eq 139 ]
}

@test "the end of the allocation reaches the program" {
  END_TIME=2026-11-22T12:00:00 job
  grep -qx "ARGOSY_DEADLINE=$(date -d 2026-11-22T12:00:00 +%s)" "$run_dir/environment"
  SLURM_JOB_END_TIME=1700000000 END_TIME=2026-11-22T12:00:00 job
  grep -qx ARGOSY_DEADLINE=1700000000 "$run_dir/environment"
  for end in NONE N/A ''; do
    END_TIME=$end job
    [ "$status" -eq 0 ]
    run ! grep -q ARGOSY_DEADLINE "$run_dir/environment"
  done
}

@test "a site that lacks a module or a launcher ends with 2" {
  echo 'module load nowhere || return' >"$root/jobs/sites/lacking.sh"
  ARGOSY_SITE=lacking job
  [ "$status" -eq 2 ]
  [[ $output == *'lacking.sh failed'* ]]
  echo 'launch=(apptainer exec --nv argosy.sif)' >"$root/jobs/sites/contained.sh"
  ARGOSY_SITE=contained job
  [ "$status" -eq 2 ]
  [[ $output == *'apptainer, which '*' is not on PATH'* ]]
  [ ! -e "$run_dir/calls" ]
}

wait_until() { # wait_until COMMAND…
  for _ in $(seq 200); do
    if "$@"; then return 0; fi
    sleep 0.05
  done
  return 1
}

@test "USR1 reaches the program, and its 75 is requeued" {
  cd "$root" || return
  WAIT_FOR_USR1=1 TOOL_SAYS='75 7' TOOL_CODE=75 bash jobs/train_16node.sh &
  script=$!
  wait_until test -e "$run_dir/ready"
  kill -USR1 "$script"
  code=0
  wait "$script" || code=$?
  [ "$code" -eq 75 ]
  requeued
}

@test "TERM means that Slurm decides: the program's code, no requeue" {
  cd "$root" || return
  WAIT_FOR_USR1=1 TOOL_SAYS='75 7' TOOL_CODE=75 bash jobs/train_16node.sh &
  script=$!
  wait_until test -e "$run_dir/ready"
  kill -TERM "$script"
  sleep 0.3
  pkill -USR1 -f "^/bin/bash $root/apps/train" # Slurm signals the ranks itself
  code=0
  wait "$script" || code=$?
  [ "$code" -eq 75 ]
  not_requeued
}

@test "the notice given to the program is that of --signal, or the user's" {
  ARGOSY_STOP_NOTICE_S=60 job
  grep -qx ARGOSY_STOP_NOTICE_S=60 "$run_dir/environment"
  signal=$(sed -n 's/^#SBATCH.*--signal=B:USR1@\([0-9]*\).*/\1/p' "$source/jobs/train_16node.sh")
  notice=$(sed -n 's/^export ARGOSY_STOP_NOTICE_S=.*:-\([0-9]*\)}.*/\1/p' "$source/jobs/train_16node.sh")
  [ -n "$signal" ]
  [ "$signal" = "$notice" ]
}

@test "bad input: one sentence and code 2" {
  unset SLURM_JOB_ID
  job
  [ "$status" -eq 2 ]
  [[ $output == *'sbatch '*'without Slurm, run its tool with mpiexec'* ]]
  export SLURM_JOB_ID=42

  ARGOSY_SITE=nowhere job
  [ "$status" -eq 2 ]
  [[ $output == *'nowhere.sh'*'default example'* ]]

  BAD_CONFIG=1 job
  [ "$status" -eq 2 ]
  [[ $output == *'is not valid'* ]]

  rm "$root/apps/train"
  job
  [ "$status" -eq 2 ]
  [[ $output == *"$root/apps/train does not exist"* ]]
  [ ! -e "$run_dir/calls" ]
}

with_wandb() { # with_wandb PROGRAM…: a run with a folder for Weights & Biases, and this stand-in for wandb
  mkdir -p "$run_dir/wandb/offline-run-1-abc"
  printf '%s\n' "echo \"wandb \$* key=\$WANDB_API_KEY\" >>'$run_dir/calls'" "$@" | program "$bin/wandb"
}

@test "a run that is online is uploaded with the key of the variable or of the file" {
  with_wandb
  RUN_WANDB=online WANDB_API_KEY=secret TOOL_SAYS='0 100' job
  [ "$status" -eq 0 ]
  grep -qx "wandb sync --include-synced $run_dir/wandb/offline-run-1-abc key=secret" "$run_dir/calls"
  [[ $output != *secret* ]]
  rm "$run_dir/calls"
  echo hidden >"$BATS_TEST_TMPDIR/key"
  RUN_WANDB=online WANDB_API_KEY_PATH=$BATS_TEST_TMPDIR/key TOOL_SAYS='75 12' TOOL_CODE=75 job
  grep -q '^wandb sync .* key=hidden$' "$run_dir/calls"
  [[ $output != *hidden* ]]
  requeued
  rm "$run_dir/calls"
  RUN_WANDB=offline WANDB_API_KEY=secret TOOL_SAYS='0 100' job
  run ! grep -q '^wandb' "$run_dir/calls"
}

@test "an upload that is not possible is one sentence, and changes no code" {
  with_wandb 'exit 1'
  RUN_WANDB=online TOOL_SAYS='0 100' job
  [ "$status" -eq 0 ]
  [[ $output == *'not uploaded to Weights & Biases: neither WANDB_API_KEY nor the file in WANDB_API_KEY_PATH gives a key; upload it with: wandb sync'* ]]
  RUN_WANDB=online WANDB_API_KEY_PATH=no/such TOOL_SAYS='0 100' job
  [[ $output == *'nor the file in WANDB_API_KEY_PATH gives a key'* && $output != *'No such file'* ]]
  RUN_WANDB=online WANDB_API_KEY=secret TOOL_SAYS='3 100' job
  [ "$status" -eq 3 ]
  [[ $output == *'wandb sync failed or took longer than 600 s'* && $output != *secret* ]]
}
