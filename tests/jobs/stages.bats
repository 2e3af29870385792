#!/usr/bin/env bats
# The scripts next to train_16node.sh, with stand-ins for Slurm and the tools: what each starts, and where its results go.

# shellcheck disable=SC2154 # make_tree assigns them
load stand_ins

setup() {
  make_tree
  export ARGOSY_CONFIG=configs/demo.json
  touch "$root/configs/demo.json"
}

started() { # started COMMAND: srun was called with it, and nothing else was
  [ "$(cat "$run_dir/calls")" = "srun --mpi=pmi2 --kill-on-bad-exit=1 env --block-signal=USR1 $root/apps/$1" ]
}

@test "count and preprocess take the configuration, and words after the script" {
  for tool in count preprocess; do
    rm -f "$run_dir/calls"
    TOOL_SAYS='0 0' submitted $tool.sh --set seed=2
    [ "$status" -eq 0 ]
    started "$tool configs/demo.json --set seed=2"
  done
}

@test "one node trains as sixteen do" {
  SLURM_JOB_NUM_NODES=1 submitted train_1node.sh
  started "train configs/demo.json"
  grep -qx ARGOSY_EXPECT_RANKS=8 "$run_dir/environment"
  unset ARGOSY_CONFIG
  rm "$run_dir/calls"
  submitted train_1node.sh
  started "train $root/configs/mistral_7b_small_cluster.json"
  diff <(grep -v '^#' "$root/jobs/train_1node.sh" | grep -v ^argosy_start) <(grep -v '^#' "$root/jobs/train_16node.sh" | grep -v ^argosy_start)
}

@test "soup takes the last four steps, the run's last one from export, and validates" {
  mkdir -p "$run_dir/checkpoints/"{000000010,000000020,000000030,000000040,000000050,.tmp-000000060-ab,000000070.bad} "$run_dir/export/"{000000050,000000055}
  submitted soup.sh
  started "soup $run_dir/checkpoints/000000030 $run_dir/checkpoints/000000040 $run_dir/export/000000050 $run_dir/export/000000055 --out $run_dir/soup --recipe greedy --validate configs/demo.json"
}

@test "soup in a run directory of any name" {
  export RUN_DIR=$root/runs/'R&D \1'
  mkdir -p "$RUN_DIR/checkpoints/"{000000010,000000020}
  submitted soup.sh
  [ "$status" -eq 0 ]
  grep -qF "apps/soup $RUN_DIR/checkpoints/000000010 $RUN_DIR/checkpoints/000000020 --out $RUN_DIR/soup" "$RUN_DIR/calls"
}

@test "soup by a recipe takes all steps, each once" {
  mkdir -p "$run_dir/checkpoints/"{000000010,000000020,.tmp-000000030-ab} "$run_dir/export/"{000000020,000000025}
  submitted soup.sh --recipe last_k --last 2
  started "soup $run_dir/checkpoints/000000010 $run_dir/export/000000020 $run_dir/export/000000025 --out $run_dir/soup --recipe last_k --last 2"
}

@test "soup without two checkpoints says so" {
  mkdir -p "$run_dir/export/000000020"
  submitted soup.sh
  [ "$status" -eq 3 ]
  [[ $output == *'at least two checkpoints, got 1'* ]]
}

@test "a job started again after its result was made is done" {
  mkdir -p "$run_dir/checkpoints/"0000000{1,2}0 "$run_dir/export/000000030"
  for script in soup.sh export.sh; do
    submitted $script
    mkdir "$run_dir/${made:-soup}"
    rm "$run_dir/calls"
    SLURM_RESTART_COUNT=1 submitted $script
    [ "$status" -eq 0 ]
    [ "$(cat "$run_dir/exit.42.1")" = '0 0' ]
    [ ! -e "$run_dir/calls" ]
    made=ct2
  done
}

@test "a result that was there before the job is not reported as made, whatever restart count was inherited" {
  mkdir -p "$run_dir/checkpoints/"0000000{1,2}0 "$run_dir/soup" "$run_dir/ct2"
  for script in soup.sh export.sh; do
    for count in 0 2; do # by the job that called sbatch; and after a refusal
      SLURM_RESTART_COUNT=$count submitted $script
      [ "$status" -eq 2 ]
      [[ $output == *'exists and is never overwritten'* ]]
    done
  done
  [ ! -e "$run_dir/calls" ]
}

@test "tools without checkpoints may be started again as often as Slurm likes" {
  for restart in 0 1 2 3 4; do SLURM_RESTART_COUNT=$restart TOOL_CODE=139 submitted preprocess.sh; done
  [ "$status" -eq 139 ]
}

@test "export takes the soup, or the checkpoint that is named" {
  submitted export.sh
  started "export $run_dir/soup --out $run_dir/ct2"
  rm "$run_dir/calls"
  ARGOSY_MODEL=some/checkpoint submitted export.sh --quantization int8
  started "export some/checkpoint --out $run_dir/ct2 --quantization int8"
}

@test "translate hands both files to the tool, which alone writes the output" {
  echo "a line" >"$root/in"
  ARGOSY_INPUT=in ARGOSY_OUTPUT=out TOOL_CODE=3 submitted translate.sh
  [ "$status" -eq 3 ]
  rm "$run_dir/calls"
  ARGOSY_INPUT=in ARGOSY_OUTPUT='out put' submitted translate.sh --beam 4
  [ "$status" -eq 0 ]
  started "translate $run_dir/soup --input in --output out put --beam 4"
  [ "$(cd "$root" && printf '%s\n' out*)" = 'out*' ]
}

@test "translate without a file to read or to write says so" {
  ARGOSY_INPUT=in submitted translate.sh
  [ "$status" -eq 2 ]
  [[ $output == *ARGOSY_OUTPUT* ]]
  ARGOSY_INPUT=nowhere ARGOSY_OUTPUT=out submitted translate.sh
  [ "$status" -eq 3 ]
  [[ $output == *nowhere* ]]
  [ ! -e "$run_dir/calls" ]
}

@test "a tool that was not built is named" {
  mkdir -p "$run_dir/checkpoints/"0000000{1,2}0
  rm "$root/apps/soup"
  submitted soup.sh
  [ "$status" -eq 2 ]
  [[ $output == *"$root/apps/soup"* ]]
}

@test "the head of each script says what it needs, when it stops and what it leaves" {
  for script in "$source"/jobs/*.sh; do
    [ "$script" != "$source/jobs/lib.sh" ] || continue
    for word in Needs Stops Leaves; do grep -q "^# $word:* " "$script" || { echo "$script: $word" && return 1; }; done
  done
}
