#!/usr/bin/env bats
# apps/train as a process: exit codes and exit files, signals through the launcher, two jobs in one run_dir, the plan of a run.

load ../verses.sh

setup_file() {
  export WORK="$BATS_FILE_TMPDIR" ROOT="$ARGOSY_SOURCE_DIR" TRAIN="$ARGOSY_BUILD_DIR/apps/train"
  cd "$WORK" && small_run 200
}

setup() { cd "$WORK" || return; }

# ranks ARGS…: train on two ranks; its exit file says what became of it, launchers lose codes.
ranks() { ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" -n 2 "$TRAIN" "$@" 2>"$WORK/log"; }

# begin ARGS…: the same in the background; $! is the launcher, which passes signals on.
begin() {
  ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" -n 2 "$TRAIN" "$@" 2>"$WORK/log" 3>&- &
  launcher=$!
}

# Digests of all shards of a checkpoint: equal for equal bits of weights and moments.
bits() { python3 -c 'import json, sys; print([s["root_digest"] for s in json.load(open(sys.argv[1]))["shards"]])' "$1/MANIFEST.json"; }

wait_for() { # wait_for TEXT FILE
  for _ in $(seq 600); do
    if grep -qs "$1" "$2"; then return 0; fi
    sleep 0.05
  done
  return 1
}

@test "a signal ends the run with 75 and a checkpoint, and the same command finishes with the bits of an uninterrupted run" {
  # Long enough for the signal to come before its end.
  local args=(config.json --set schedule.length=400)
  ranks "${args[@]}" --set run_dir=whole
  read -r code step <"$WORK/exit"
  [ "$code $step" = "0 400" ]

  rm exit
  begin "${args[@]}"
  wait_for "step 5 " log
  kill -TERM $launcher
  wait $launcher || true
  read -r code step <"$WORK/exit"
  [ "$code" = 75 ]
  [ "$step" -lt 400 ]
  [ -d "run/checkpoints/$(printf %09d "$step")" ]
  grep -q '"status":"stopped"' log
  grep -q '"state":"stopped"' <(tr -d ' ' <run/status.json)

  ranks "${args[@]}"
  read -r code step <"$WORK/exit"
  [ "$code $step" = "0 400" ]
  [ "$(bits run/export/000000400)" = "$(bits whole/export/000000400)" ]
  grep -q '"state":"done"' <(tr -d ' ' <run/status.json)
  # metrics.jsonl holds the lines of one run: every interval once, in order.
  [ "$(grep -o '"step":[0-9]*' whole/metrics.jsonl)" = "$(grep -o '"step":[0-9]*' run/metrics.jsonl | sort -t: -k2,2n -u)" ]
}

@test "--profile prints where the time goes, and a resume on a processor with other instructions is said" {
  [ "$(uname -m)" = x86_64 ] || skip "other processors have one table of loops"
  ranks config.json --set run_dir=profiled --set schedule.warmup=5 --set schedule.length=10 --profile
  grep -Eq '^  gemm +[0-9.]+ +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9.]+%$' log
  grep -q 'profile of rank 0: 7 steps of' log
  grep -q '"profile":{"steps":7,' log
  ARGOSY_CPU_KERNELS=baseline ranks config.json --set run_dir=profiled --set schedule.warmup=5 --set schedule.length=12
  grep -q 'changed since step 10: CPU instructions: baseline, was avx' log
}

@test "the stop file ends the run with a word about it, and none starts while it is there" {
  local args=(config.json --set run_dir=asked --set schedule.length=100000 --set stop.file=stop)
  begin "${args[@]}"
  wait_for "step 5 " log
  touch stop
  wait $launcher || true
  grep -qE '^75 [0-9]+ stop_file$' exit
  read -r _ step _ <"exit"
  [ -d "asked/checkpoints/$(printf %09d "$step")" ]
  ranks "${args[@]}" || true
  [ "$(cut -d' ' -f1 exit)" = 2 ]
  grep -q 'stop.file.*stop.*; remove it to train' log
  [ "$(ls asked/checkpoints)" = "$(printf %09d "$step")" ] # no step was taken
  rm stop
  ranks "${args[@]}" --set schedule.length="$((step + 2))"
  [ "$(cat exit)" = "0 $((step + 2))" ]
}

@test "a run goes on from an older checkpoint only where the newer ones may be abandoned" {
  local args=(config.json --set run_dir=back --set schedule.length=40 --set checkpoint.interval=10) before newer
  ranks "${args[@]}"
  before=$(ls -A back/checkpoints back/export)
  rm exit
  ranks "${args[@]}" --resume back/checkpoints/000000020 || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
  newer="back/export/000000040, back/checkpoints/000000030"
  grep -q "000000020 is not the newest checkpoint of the run (newer: $newer); .*--abandon-newer" log
  [ "$(ls -A back/checkpoints back/export)" = "$before" ]

  rm exit
  ranks "${args[@]}" --resume back/checkpoints/000000020 --abandon-newer
  read -r code step <"$WORK/exit"
  [ "$code $step" = "0 40" ]
  grep -q "resumed from back/checkpoints/000000020" log
  grep -q '"steps":20,' log
  [ "$(bits back/export/000000040)" = "$(bits back/export/.old-000000040-*)" ]
  [ "$(bits back/checkpoints/000000030)" = "$(bits back/checkpoints/.old-000000030-*)" ]
}

# kill_in_a_step: kills the last rank of the run begun last, once that run has saved a step. Its number does not matter: all
# ranks wait for all in every step.
kill_in_a_step() {
  wait_for "saved $1/" log
  kill -KILL "$(pgrep -n -f "$TRAIN config.json --set run_dir=$1 ")"
}

@test "a rank killed in a step ends the run, and the same command finishes with the bits of an uninterrupted run" {
  local n flags=() args job ended
  for n in 2 3; do
    args=(--set schedule.length=400 --set batch.global_size=3000 --set batch.micro_size=500 --set checkpoint.interval=20
      --set comm.timeout_s=3)
    ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" -n $n "$TRAIN" config.json --set run_dir=sound$n "${args[@]}" 2>log
    read -r code step <"$WORK/exit"
    [ "$code $step" = "0 400" ]

    # MPICH's mpiexec sees the death and kills the others, with -disable-auto-cleanup as well, most times before they do.
    if ((n == 3)); then flags=(-disable-auto-cleanup); fi
    ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" "${flags[@]}" -n $n "$TRAIN" config.json --set run_dir=killed$n "${args[@]}" \
      2>log 3>&- &
    job=$!
    kill_in_a_step killed$n
    ended=0
    wait $job || ended=$?
    [ $ended -ne 0 ]
    if [ -e "$WORK/exit" ]; then
      read -r code step <"$WORK/exit"
      [ "$code" = 5 ]
    fi

    : >log # it is read before the next run opens it
    # A launcher that does not see it (srun without --kill-on-bad-exit): the others do, within the deadline.
    ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" -n $n sh -c '"$@"; sleep 20' rank "$TRAIN" config.json --set run_dir=killed$n \
      "${args[@]}" 2>log 3>&- &
    job=$!
    kill_in_a_step killed$n
    ended=$SECONDS
    wait $job || true
    [ $((SECONDS - ended)) -lt 15 ]
    read -r code step <"$WORK/exit"
    [ "$code" = 5 ]
    grep "resumed from killed$n/checkpoints/000000[0-3][0-9]0" log
    # Either the deadline passes, or UCX aborts a rank that reads a dead one's memory.
    grep -E "step ($step|$((step + 1))): .* of [0-9]+ bytes did not end( within 3.* s: no answer from rank|: the MPI library aborted)" log
    grep -q '^result {"tool":"train","status":"failed","code":5,' log

    ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" -n $n "$TRAIN" config.json --set run_dir=killed$n "${args[@]}" 2>log
    read -r code step <"$WORK/exit"
    [ "$code $step" = "0 400" ]
    grep -q "resumed from" log
    [ "$(bits killed$n/export/000000400)" = "$(bits sound$n/export/000000400)" ]
    ! ls -d killed$n/checkpoints/.tmp* || false # a rank may have died while a checkpoint was being saved
  done
}

@test "metrics and a status that cannot be written end nothing: the log has them, and says so once" {
  mkdir -p deaf/status.json
  ln -s /dev/full deaf/metrics.jsonl
  ranks config.json --set run_dir=deaf --set schedule.length=30
  read -r code step <"$WORK/exit"
  [ "$code $step" = "0 30" ]
  [ "$(grep -c "deaf/metrics.jsonl is not written from step 0 on: .*ELOOP" log)" = 1 ]
  [ "$(grep -c "deaf/status.json is not written from step 0 on: .*EISDIR" log)" = 1 ]
  [ "$(grep -c "is not written" log)" = 2 ]
  grep -q "step 30 " log
  begin config.json --set run_dir=deaf --set schedule.length=4000
  wait_for "step 40 " log
  kill -TERM $launcher
  wait $launcher || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 75 ]
}

@test "a second job in the same run_dir ends with 2 and disturbs nobody" {
  begin config.json --set run_dir=shared --set schedule.length=4000
  wait_for "step 5 " log
  ARGOSY_EXIT_FILE="$WORK/second" "$TRAIN" config.json --set run_dir=shared --set schedule.length=4000 2>second.log || true
  read -r code _ <second
  [ "$code" = 2 ]
  wait_for "step 20 " log
  kill -TERM $launcher
  wait $launcher || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 75 ]
}

@test "idle ranks are warned of, and what is held stands next to what was planned" {
  ranks config.json --set run_dir=idle --set batch.global_size=3000 --set schedule.warmup=1 --set schedule.length=3
  read -r code step <"$WORK/exit"
  [ "$code $step" = "0 3" ]
  grep -q "warning.*ranks are idle 25.0 % of the time: 3 micro-batches a step for 4 slots (batch.global_size 2,000 or 4,000 avoids that)" log
  grep -q "after step 3: memory of the fullest rank: .* MiB for state and buffers (planned: .*); at most .* MiB for the rest (estimated" log
  grep -o '"memory":{.*}' log | grep -q '"state_bytes":\([0-9]*\),"planned_state_bytes":\1,'
}

@test "bad input ends with its code and one sentence" {
  ranks config.json --set optimizer.beta3=0.9 || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
  grep -q "beta3" log

  ranks config.json --set run_dir=bad --allow-change tokenizer || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
  grep -q -e "--allow-change: tokenizer not in {data,batch,seed,.*,tasks}" log

  ranks config.json --set run_dir=bad --set data.tokenizer=absent.model || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 3 ]
  grep -q "absent.model" log

  ranks config.json --set run_dir=bad --set batch.global_size=1500 || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
}

# pair ARGS… : ARGS…: a rank of each command line.
pair() {
  local first=() second=("$@")
  while [ "${second[0]}" != : ]; do
    first+=("${second[0]}")
    second=("${second[@]:1}")
  done
  ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" -n 1 "$TRAIN" "${first[@]}" : -n 1 "$TRAIN" "${second[@]:1}" 2>"$WORK/log"
}

@test "steps skipped in a row, as many as allowed, end the run with 6 and one sentence" {
  rm -f exit
  ranks config.json --set run_dir=skips --set optimizer.skip.abs=1e-9 --set optimizer.skip.max_consecutive=3 || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 6 ]
  grep -q "3 steps in a row" log
}

@test "ranks that disagree on configuration or data are refused before the run begins" {
  pair config.json --set run_dir=apart : config.json --set run_dir=apart --set seed=4 || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
  grep -q "seed is 3 on rank 0 and 4 on rank 1; start all ranks with the same configuration" log
  pair config.json --set run_dir=apart : config.json --set run_dir=apart --from-scratch || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
  [ ! -e apart ]

  # The same command on a node whose own disk holds shards of other texts.
  mkdir -p other
  head -n 150 train.en >other/train.en
  head -n 150 train.es >other/train.es
  cp config.json t.model other/
  (cd other && "$ARGOSY_BUILD_DIR/apps/preprocess" config.json --set data.tokenizer_training=null 2>preprocess.log)
  ARGOSY_EXIT_FILE="$WORK/exit" "$ARGOSY_MPIEXEC" -n 1 "$TRAIN" config.json --set run_dir="$WORK/apart" : \
    -n 1 -wdir "$WORK/other" "$TRAIN" config.json --set run_dir="$WORK/apart" 2>log || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 3 ]
  grep -q "data.shards: the ranks read different token shards: their digest is .* on rank 0 and .* on rank 1" log
  ! ls apart/checkpoints/0* || false
}

# plan CONFIG ARGS…: the plan as JSON in plan.json.
plan() { "$TRAIN" "$ROOT/configs/$1" --dry-run --json "${@:2}" >plan.json; }

# close_to PATH VALUE TOLERANCE: the figure at a path of plan.json, as in schemes.stage_1.state_bytes.
close_to() {
  python3 - "$@" <<'PY'
import json, sys
value = json.load(open("plan.json"))
for key in sys.argv[1].split("."):
    value = value[int(key)] if isinstance(value, list) else value[key]
wanted, tolerance = float(sys.argv[2]), float(sys.argv[3])
if abs(value - wanted) > tolerance * abs(wanted):
    sys.exit(f"{sys.argv[1]} is {value}, not {wanted}")
PY
}

@test "the plan of the Mistral recipe has the published figures and needs no data" {
  run "$TRAIN" "$ROOT/configs/mistral_7b.json" --dry-run --ranks 128
  [ "$status" -eq 0 ]
  [[ "$output" == *"7,241,732,096 parameters"* ]]
  [[ "$output" == *"1,048,576 tgt_tokens a step, 524,288,000,000 in all"* ]]
  [[ "$output" == *"length: 500000 steps; "*"learning rate: 1e-07 at step 1, 0.0001 at step 1000, "*"3e-06 at step 500000"* ]]
  [[ "$output" == *"128 examples = 128 micro-batches of 1 on 128 ranks, accumulation 1"* ]]
  [[ "$output" == *"activations then 35.5"* ]]
  run "$TRAIN" "$ROOT/configs/mistral_7b.json" --dry-run --ranks 4
  [ "$status" -eq 2 ]
  [[ "$output" == *"accumulation 32"*"the GPU (h100) has "* ]]

  plan mistral_7b.json --ranks 128 --gpu-rate 9000 --set loss.chunk_bytes=0
  close_to schemes.stage_1.state_bytes $((411 * 2 ** 30 / 10)) 0.001
  close_to activations.total_bytes $((3547 * 2 ** 30 / 100)) 0.001
  close_to schemes.stage_1.node_bytes 40.7e9 0.001
  close_to run_s 455040 0.01
  close_to layouts.3.accumulation 2 0
  [ "$(grep -c '"fits": false' plan.json)" -ge 3 ]
}

@test "small clusters and hybrid sharding are planned, and what has no memory is refused with one sentence" {
  plan mistral_7b_small_cluster.json --ranks 4
  close_to accumulation 32 0
  grep -q '"scheme": "stage_2"' plan.json
  plan mistral_7b_small_cluster.json --ranks 64
  close_to accumulation 2 0
  close_to schemes.stage_2.state_bytes $((168 * 2 ** 30 / 10)) 0.001
  plan llama2_7b_hybrid.json --ranks 8 --nodes 2 --gpu a100 --node-gbs 6.25 --gpu-rate 4000
  close_to schemes.hybrid.node_bytes 13.48e9 0.001
  close_to comparisons.hsdp.positions_per_s_per_gpu 2885.75 0.05

  ranks config.json --set run_dir=huge --set model.width=65536 --set model.ff=262144 --set model.heads=512 || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
  grep -q "sharding scheme stage_1 on 2 ranks .* needs .* MiB per rank" log
  ranks config.json --set run_dir=huge --set model.width=65536 --set model.ff=262144 --set model.heads=512 \
    --set sharding.zero_stage=3 || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 2 ]
  grep -q "sharding scheme stage_3 on 2 ranks (1 node) needs .* MiB per rank, but a rank has .*, and no sharding scheme fits on these nodes; use more nodes" log
  ! ls huge/checkpoints/0* || false
  run "$TRAIN" "$ROOT/configs/llama2_7b_hybrid.json" --dry-run --set sharding.zero_stage=2
  [ "$status" -eq 2 ]
  [[ "$output" == *"zero_stage=3"* ]]
  run "$TRAIN" "$ROOT/configs/mistral_7b.json" --dry-run --set batch.accumulation=3 --ranks 128
  [ "$status" -eq 2 ]
  [[ "$output" == *"accumulation 1"* ]]
}

@test "ranks that share a GPU compute on the CPU, or are refused where GPUs are asked for" {
  driver="$ARGOSY_BUILD_DIR/tests/stand_in/libcuda.so.1"
  [ -f "$driver" ] || skip "no stand-in for a driver in this build"
  export ARGOSY_STAND_IN_GPUS=1
  LD_PRELOAD="$driver" ranks config.json --set run_dir=shared --set schedule.length=25
  grep -q "warning not every rank has its own GPU, so all ranks compute on the CPU" log
  LD_PRELOAD="$driver" ranks config.json --set run_dir=refused --set device=cuda || true
  read -r code _ <"$WORK/exit"
  [ "$code" = 5 ]
  grep -q "expected one GPU for every rank, got 2 ranks on one GPU" log
  [ ! -e refused/checkpoints ]
}

@test "Weights & Biases and TensorBoard read a run that was stopped and continued as metrics.jsonl has it, and the log is kept" {
  settings=(config.json --set run_dir=watched --set telemetry.log_interval=10 --set telemetry.tensorboard=true --set telemetry.wandb.mode=offline --set telemetry.wandb.project=ships
    --set telemetry.wandb.name=first --set schedule.length=4000 --set checkpoint.interval=20)
  begin "${settings[@]}"
  wait_for "step 50 " log
  kill -KILL $launcher
  wait $launcher || true
  ranks "${settings[@]}" --set schedule.length=100
  [ "$(find watched/wandb -name "*.wandb" | wc -l)" = 1 ]
  grep -q 'Z info    resumed from' watched/rank0.log
  [ "$(grep -c 'Z info    step 10 ' watched/rank0.log)" = 1 ]
  ranks "${settings[@]}" --set run_dir=silent --set schedule.length=30 --set telemetry.log_file=false --set telemetry.wandb.mode=off
  [ ! -e silent/rank0.log ] && [ ! -e silent/wandb ]
  judge wandb watched
  judge tensorboard watched
}
