#!/usr/bin/env bats
# jobs/chain.sh and status.sh with stand-ins for Slurm and the tools.

# shellcheck disable=SC2154 # make_tree assigns them
bats_require_minimum_version 1.5.0
load stand_ins

setup() {
  make_tree
  unset SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NUM_NODES SLURM_NTASKS_PER_NODE SLURM_SUBMIT_DIR SLURM_JOB_NODELIST
  touch "$root/configs/demo.json"
  cd "$root" || return
}

chain() { run jobs/chain.sh configs/demo.json "$@"; }
raw_submissions() { grep '^sbatch' "$run_dir/calls" 2>/dev/null | grep -v -e --test-only || true; }
submissions() { raw_submissions | sed "s# ARGOSY_ROOT=$root ARGOSY_CONFIG=configs/demo.json##"; }
again() { rm -f "$run_dir/calls"; }
ends() { # ends JOB CODE
  rm -f "$run_dir/queue.$1"
  echo "$2 0" >"$run_dir/exit.$1.0"
}

@test "each stage waits for the one before, and for nothing that cannot come" {
  chain
  [ "$status" -eq 0 ]
  diff <(submissions) - <<TEXT
sbatch --parsable $root/jobs/count.sh
sbatch --parsable --dependency=afterok:101 --kill-on-invalid-dep=yes $root/jobs/preprocess.sh
sbatch --parsable --dependency=afterok:102 --kill-on-invalid-dep=yes $root/jobs/train_16node.sh
sbatch --parsable --dependency=afterok:103 --kill-on-invalid-dep=yes $root/jobs/soup.sh
sbatch --parsable --dependency=afterok:104 --kill-on-invalid-dep=yes $root/jobs/export.sh
TEXT
  [[ $output == *'scancel 101 102 103 104 105'* ]]
  tail -n 1 <<<"$output" >last
  python3 - <<'PYTHON'
import json
result = json.loads(open("last").read().removeprefix("result "))
assert result["submitted"] == 5 and result["stages"]["train"]["job"] == "103", result
chain = json.load(open(result["run_dir"] + "/chain.json"))
assert chain["config"] == "configs/demo.json"
assert [stage["job"] for stage in chain["stages"]] == ["101", "102", "103", "104", "105"]
PYTHON
}

@test "what a job has to know are words of its script, whatever sbatch exports" {
  ARGOSY_SITE=example OMP_NUM_THREADS=3 ARGOSY_MODEL='a model, with a comma' chain --to soup '--recipe last_k --last 5'
  [ "$(raw_submissions | grep -c "\.sh ARGOSY_ROOT=$root ARGOSY_CONFIG=configs/demo.json ARGOSY_SITE=example ARGOSY_MODEL=a model, with a comma OMP_NUM_THREADS=3")" = 5 ]
  raw_submissions | grep -q ' OMP_NUM_THREADS=3 --recipe last_k --last 5$'
}

@test "called inside a job, it hands nothing of that job on" {
  program "$bin/sbatch" <<'SBATCH'
env >>"$RUN_DIR/environments"
echo 7
SBATCH
  export SLURM_CONF=/etc/slurm.conf SLURM_CLUSTERS=both
  SLURM_JOB_ID=42 SLURM_RESTART_COUNT=3 SLURM_NTASKS=9 SLURM_CPUS_PER_TASK=5 ARGOSY_EXPECT_RANKS=128 ARGOSY_DEADLINE=1 chain
  [ "$status" -eq 0 ]
  grep -qx SLURM_CONF=/etc/slurm.conf "$run_dir/environments"
  grep -qx SLURM_CLUSTERS=both "$run_dir/environments"
  run ! grep -qE '^(SLURM_(RESTART_COUNT|NTASKS|CPUS_PER_TASK)|ARGOSY_(EXPECT_RANKS|DEADLINE))=' "$run_dir/environments"
}

@test "before anything is submitted it can be planned and asked for" {
  rm -r "$run_dir"
  run jobs/status.sh configs/demo.json
  [ "$status" -eq 3 ]
  [[ $output == *'nothing has been submitted'* ]]
  run jobs/chain.sh configs/demo.json --dry-run
  [ "$status" -eq 0 ]
  [[ $output == *'to be submitted'* ]]
  [ ! -e "$run_dir/chain.json" ]
}

@test "what stands where its own files go is neither followed nor waited for" {
  touch "$root/theirs"
  mkfifo "$run_dir/chain.lock"
  chain
  [ "$status" -eq 4 ]
  [[ $output == *'chain.lock is not a regular file'* ]]
  rm "$run_dir/chain.lock"
  ln -s "$root/theirs" "$run_dir/chain.json.tmp"
  chain
  [ "$status" -eq 0 ]
  [ ! -s "$root/theirs" ]
}

@test "names with spaces, quotes and commands in them are names" {
  # shellcheck disable=SC2016 # a name
  export RUN_DIR=$root/'runs/a "b" \ $(touch hacked) ü'
  mkdir -p "$RUN_DIR"
  # shellcheck disable=SC2016 # a name
  config='configs/a "b" $(touch hacked), c.json'
  touch "$root/$config"
  run jobs/chain.sh "$config"
  [ "$status" -eq 0 ]
  grep -qF "ARGOSY_CONFIG=$config" "$RUN_DIR/calls"
  CONFIG=$config python3 - <<'PYTHON'
import json, os
assert json.load(open(os.environ["RUN_DIR"] + "/chain.json"))["config"] == os.environ["CONFIG"]
PYTHON
  tail -n 1 <<<"$output" | sed 's/^result //' | python3 -c 'import json, os, sys; assert json.load(sys.stdin)["run_dir"] == os.environ["RUN_DIR"]'
  run jobs/status.sh "$config"
  [ "$status" -eq 0 ]
  tail -n 1 <<<"$output" | sed 's/^result //' | python3 -c 'import json, os, sys; assert json.load(sys.stdin)["run_dir"] == os.environ["RUN_DIR"]'
  [ ! -e hacked ]
}

@test "what stands in the files of a run directory is never run" {
  # shellcheck disable=SC2016 # not for this shell
  evil='PATH[$(touch${IFS}hacked)]'
  chain
  for file in exit.101.0 exit.102.1 starts.103; do printf '%s 0\n' "$evil" >"$run_dir/$file"; done
  rm "$run_dir"/queue.*
  printf '{"state":"running","step":"%s","fraction_done":"%s","time":"%s","eta_s":"%s"}\n' "$evil" "$evil" "$evil" "$evil" >"$run_dir/status.json"
  run jobs/status.sh configs/demo.json
  [ ! -e hacked ]
  [ "$status" -eq 4 ]
  [[ $output == *'exit.101.0: not an exit file'* ]]
  [[ $output == *'status.json: not a status file of train'* ]]
  printf '{"config":"x","stages":[{"stage":"train","job":"%s"}]}\n' "$evil" >"$run_dir/chain.json"
  run jobs/status.sh configs/demo.json
  [ "$status" -eq 4 ]
  chain
  [ ! -e hacked ]
  [ "$(submissions | wc -l)" = 10 ] # five, and five again
}

@test "the plan is asked for the ranks and nodes the job will have" {
  chain
  grep -qx 'plan configs/demo.json --dry-run --nodes 16 --ranks 128' "$run_dir/calls"
  again
  chain --from train --on train '--nodes=4 --ntasks-per-node=2' --to train '--set seed=2' -- --gpus-per-node=0
  grep -qx 'plan configs/demo.json --set seed=2 --dry-run --nodes 4 --ranks 8 --set device=cpu' "$run_dir/calls"
  again
  chain --from train --train train_1node.sh --on train --ntasks=3
  grep -qx 'plan configs/demo.json --dry-run --nodes 1 --ranks 3' "$run_dir/calls"
  submissions | grep -q "jobs/train_1node.sh$"
}

@test "words reach sbatch, of all stages or of one, and the tools" {
  chain --on train '--nodes=4 --time=5' --to soup '--recipe last_k --last 5' -- --account=mine
  [ "$(submissions | grep -c -e --account=mine)" = 5 ]
  submissions | grep -q -e '^sbatch --account=mine --nodes=4 --time=5 --parsable .*train_16node.sh$'
  submissions | grep -q -e 'soup.sh --recipe last_k --last 5$'
}

@test "a second call submits only what is not done" {
  chain
  for job in 101 102; do ends $job 0; done
  ends 103 3
  rm "$run_dir"/queue.10[45]
  again
  chain
  [ "$status" -eq 0 ]
  diff <(submissions) - <<TEXT
sbatch --parsable $root/jobs/train_16node.sh
sbatch --parsable --dependency=afterok:106 --kill-on-invalid-dep=yes $root/jobs/soup.sh
sbatch --parsable --dependency=afterok:107 --kill-on-invalid-dep=yes $root/jobs/export.sh
TEXT
  for job in 106 107 108; do ends $job 0; done
  again
  chain
  [ "$status" -eq 0 ]
  [ -z "$(submissions)" ]
  [[ $output == *'"submitted":0'* ]]
}

@test "what is queued stays, and what comes behind a failed stage is taken back first" {
  chain
  again
  chain
  [ -z "$(submissions)" ]
  [[ $output == *'queued pending dependency'* ]]
  ends 101 0
  ends 102 3
  chain
  [ "$(submissions | wc -l)" = 4 ]
  submissions | grep -q -e '--dependency=afterany:103 --kill-on-invalid-dep=yes .*train_16node.sh$' || submissions | grep -q 'afterok:[0-9]*,afterany:103 '
  [ "$(tail -n 1 "$run_dir/calls")" = 'scancel 103 104 105' ] # when all is submitted
}

@test "a stage that stopped and waits for its restart is queued, one that was cancelled is submitted again" {
  chain
  echo '75 12' >"$run_dir/exit.101.0"
  again
  chain
  [ -z "$(submissions)" ]
  rm "$run_dir"/queue.*
  chain
  [ "$(submissions | wc -l)" = 5 ]
}

@test "a Slurm that does not answer has nothing submitted twice" {
  chain
  again
  SILENT=1 chain
  [ "$status" -eq 2 ]
  [[ $output == *'the state of job 101'*'Unable to contact'* ]]
  [ -z "$(submissions)" ]
}

@test "--from runs a stage and all behind it again" {
  chain
  for job in 101 102 103 104 105; do ends $job 0; done
  again
  chain --from soup
  [ "$(submissions | sed 's#.*/##')" = $'soup.sh\nexport.sh' ]
}

@test "a result that is there is done, and set aside where its stage must run again" {
  chain
  for job in 101 102 103; do ends $job 0; done
  ends 104 2
  rm "$run_dir/queue.105"
  mkdir "$run_dir/soup" # made, and its job lost its node before it could say so
  again
  chain
  [ "$(submissions | sed 's#.*/##')" = export.sh ]
  chain --from train
  compgen -G "$run_dir/soup.old-*"
  [ ! -e "$run_dir/soup" ]
}

@test "a call that is cut off has written down what it queued" {
  REFUSED=afterok:103 chain
  [ "$(grep -c '"job":"10[123]"' "$run_dir/chain.json")" = 3 ]
}

@test "two calls at once: the second is refused" {
  exec 8>"$run_dir/chain.lock"
  flock 8
  chain
  [ "$status" -eq 2 ]
  [[ $output == *'another jobs/chain.sh'* ]]
  flock -u 8
  chain
  [ "$status" -eq 0 ]
}

@test "--dry-run checks and submits nothing" {
  chain --dry-run
  [ "$status" -eq 0 ]
  [ -z "$(submissions)" ]
  [ ! -e "$run_dir/chain.json" ]
  [[ $output == *'to be submitted: sbatch jobs/train_16node.sh'* ]]
  grep -q '^plan' "$run_dir/calls"
}

@test "nothing is queued when anything is refused" {
  BAD_CONFIG=1 chain
  [ "$status" -eq 2 ]
  [[ $output == *'is not valid'* ]]
  BAD_PLAN='expected 41.1 GiB, got 39.4' chain
  [ "$status" -eq 2 ]
  [[ $output == *'got 39.4'* ]]
  REFUSED=export.sh chain
  [ "$status" -eq 2 ]
  [[ $output == *'refuses the job of export'*'not available'* ]]
  ARGOSY_SITE=nowhere chain
  [ "$status" -eq 2 ]
  [[ $output == *'default example'* ]]
  chain --train train_2node.sh
  [ "$status" -eq 2 ]
  [[ $output == *'train_2node.sh'* ]]
  [ -z "$(submissions)" ]
  [ ! -e "$run_dir/chain.json" ]
}

@test "a soup that would have nothing to decide by is refused before days of training" {
  SETS='[]' chain
  [ "$status" -eq 2 ]
  [[ $output == *'no validation text'*'--recipe uniform'* ]]
  [ -z "$(submissions)" ]
  SETS='[]' chain --to soup '--recipe uniform'
  [ "$status" -eq 0 ]
}

@test "the export of a model of several tasks needs one of them, which is said before days of training" {
  TASKS='4 tasks, 7 components, all on every rank' chain
  [ "$status" -eq 2 ]
  [[ $output == *"a model of several tasks"*"--to export '--task NAME'"* ]]
  [ -z "$(submissions)" ]
  TASKS='4 tasks, 7 components, all on every rank' chain --to export '--task en-fr'
  [ "$status" -eq 0 ]
}

@test "a refusal in the middle takes back what was queued" {
  REFUSED=afterok:103 chain
  [ "$status" -eq 2 ]
  grep -qx 'scancel 101 102 103' "$run_dir/calls"
  again
  chain
  [ "$(submissions | wc -l)" = 5 ]
}

@test "without sbatch it says what to do" {
  rm "$bin/sbatch"
  for program in bash sed tr cat dirname; do ln -s "$(command -v $program)" "$bin/"; done # a PATH without Slurm
  PATH=$bin chain
  [ "$status" -eq 2 ]
  [[ $output == *'mpiexec -n 2 apps/count configs/demo.json'* ]]
}

@test "a run directory that cannot be made or written ends with 4" {
  touch "$root/runs/file"
  RUN_DIR=$root/runs/file/below run jobs/chain.sh configs/demo.json
  [ "$status" -eq 4 ]
  [[ $output == *'run directory'* ]]
  mkdir "$run_dir/chain.lock"
  chain
  [ "$status" -eq 4 ]
  [[ $output == *'chain.lock is not a regular file'* ]]
}

@test "a size of training that is no number is refused, and never run" {
  # shellcheck disable=SC2016 # not for this shell
  for nodes in 2-4 'PATH[$(touch${IFS}hacked)]' 0; do
    chain --on train "--nodes=$nodes"
    [ "$status" -eq 2 ]
    [[ $output == *'--nodes of training must be one number'* ]]
  done
  [ -z "$(submissions)" ]
  [ ! -e hacked ]
}

@test "wrong words: one sentence and code 2" {
  for words in '' 'configs/demo.json --on train -N4' 'configs/demo.json --to train --set=run_dir=x' 'a.json b.json' 'a.json --frm train' 'a.json --from soap' 'a.json --on train' 'a.json --from'; do
    # shellcheck disable=SC2086 # words
    run jobs/chain.sh $words
    [ "$status" -eq 2 ]
  done
  [ ! -e "$run_dir/calls" ]
}

@test "status tells jobs, training, validation and disk" {
  run jobs/status.sh configs/demo.json
  [ "$status" -eq 3 ]
  chain
  ends 101 0
  ends 102 3
  echo 'RUNNING None' >"$run_dir/queue.103"
  printf '{"state":"running","step":1200,"fraction_done":2.4E-1,"time":"%s","eta_s":3.6005E3,"job":"103"}\n' "$(date -u +%FT%TZ)" >"$run_dir/status.json"
  printf '%s\n' '{"step":1000,"validation":"dev","figures":{"loss":2.1E0,"chrf":4.12E1}}' '{"step":1100,"loss":2.0}' >"$run_dir/metrics.jsonl"
  for what in configs/demo.json "$run_dir"; do
    run jobs/status.sh "$what"
    [ "$status" -eq 0 ]
    for line in 'count +101 +done' 'preprocess +102 +failed 3' 'train +103 +queued running' 'soup +104 +queued pending dependency' \
      'training running at step 1200, 24.0 % done, last update [0-5] s ago' "ETA $(date -d '+1 hour' '+%F %H')" \
      'validation at step 1000 on dev: loss 2.1000, chrf 41.2000' 'disk: [0-9]+ MiB in .*, [0-9]+ MiB free'; do
      grep -qE "^$line" <<<"$output"
    done
    tail -n 1 <<<"$output" | sed 's/^result //' | python3 -c 'import json, sys; r = json.load(sys.stdin); assert r["training"]["step"] == 1200 and r["stages"]["preprocess"]["state"] == "failed 3", r'
  done
}
