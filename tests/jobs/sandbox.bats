#!/usr/bin/env bats
# Job scripts under a real Slurm (scripts/slurm-sandbox): sixteen emulated nodes, a rank on each; and as typed.

# shellcheck disable=SC2154 # cluster.bash assigns them
bats_require_minimum_version 1.5.0
load cluster

setup_file() { start_cluster --nodes 16 --gpus 8; }
teardown_file() { "$SANDBOX" down; }
setup() { on_cluster; }

@test "sixteen nodes train to the end, and four nodes go on from there" {
  train 16 sixteen --set schedule.length=20
  within 100 ended
  [ "$(verdict 0)" = "0 20" ]
  log_has "ranks: 16, nodes: 16,"
  train 4 sixteen --set schedule.length=25
  within 60 ended
  [ "$(verdict 0)" = "0 25" ]
  log_has "resumed from runs/sixteen/export/000000020"
}

@test "a job that is told to stop saves, is requeued under its id, and reaches the bits of an undisturbed run" {
  train 2 whole --set schedule.length=40
  within 60 ended
  train 2 parts --set schedule.length=40
  within 60 log_has "step 3 "
  scancel --batch --signal=USR1 "$job" # what --signal does before the limit
  within 30 pending
  read -r code stopped <<<"$(verdict 0)"
  [ "$code" = 75 ]
  [ "$stopped" -gt 3 ] && [ "$stopped" -lt 40 ]
  log_has "stopping .*after step $stopped: SIGUSR1"
  start_again
  within 60 ended
  [ "$(verdict 1)" = "0 40" ]
  log_has "resumed from runs/parts/checkpoints/$(printf %09d "$stopped")"
  [ -n "$(weights whole 000000040)" ]
  [ "$(weights parts 000000040)" = "$(weights whole 000000040)" ]
}

@test "as typed it is accepted on sixteen nodes of eight GPUs, and not on fewer" {
  job=$(unset ARGOSY_CONFIG && sbatch --parsable --hold jobs/train_16node.sh)
  [ "$(squeue -h -j "$job" -o '%D %C %b')" = "16 128 gres:gpu:8" ]
  scancel "$job"
  run -1 sbatch --nodes=17 jobs/train_16node.sh
}

@test "as typed it launches 128 ranks, eight a node, that see eight GPUs" {
  stand_in seen <<'TOOL'
echo "$(hostname) $SLURM_PROCID $SLURM_LOCALID $CUDA_VISIBLE_DEVICES $ARGOSY_EXPECT_RANKS $*" >"runs/seen/rank.$SLURM_PROCID"
if [ "$SLURM_PROCID" = 0 ]; then echo '0 0' >"$ARGOSY_EXIT_FILE"; fi
TOOL
  job=$(unset ARGOSY_CONFIG && ARGOSY_ROOT=$PWD/seen sbatch --parsable jobs/train_16node.sh)
  within 60 ended
  for ((rank = 0; rank < 128; ++rank)); do
    echo "node$((rank / 8 + 1)) $rank $((rank % 8)) 0,1,2,3,4,5,6,7 128 $PWD/seen/configs/mistral_7b.json"
  done >expected
  for ((rank = 0; rank < 128; ++rank)); do cat "runs/seen/rank.$rank"; done | diff - expected
}

@test "a chain from text to a model that translates: a stage that fails leaves nothing pending, the next call runs the rest" {
  sed -e 's#"runs/tiny/\(train\|tokenizer.model\|shards\)"#"runs/chain/\1"#' -e 's#runs/tiny/text/valid#runs/chain/valid#g' \
    -e 's/"length": 300/"length": 60/' -e 's/"interval": 50,/"interval": 15,/' -e 's/, "chrf"//' configs/tiny.json >chain.json
  chain() { jobs/chain.sh chain.json --on train --nodes=3 --to export '--quantization int8' -- --ntasks-per-node=1 --gpus-per-node=0 --time=10; }
  all_ended() { queued=$(squeue -h -o %T) && [ -z "$queued" ]; }
  job=none
  chain
  within 150 all_ended # there is no text to validate on
  run -0 jobs/status.sh chain.json
  for line in 'count +[0-9]+ +done' 'preprocess +[0-9]+ +done' 'train +[0-9]+ +failed 3' 'soup +[0-9]+ +cancelled' 'export +[0-9]+ +cancelled'; do
    grep -qE "^$line$" <<<"$output"
  done
  cp runs/tiny/text/valid.* runs/chain/
  SBATCH_EXPORT=NONE run -0 chain # as where a site exports no variables to jobs
  grep -q '"submitted":3' <<<"$output"
  within 150 all_ended
  run -0 jobs/status.sh chain.json
  [ "$(grep -cE '^(count|preprocess|train|soup|export) +[0-9]+ +done$' <<<"$output")" = 5 ]
  grep -q '^training done at step 60, 100.0 % done' <<<"$output"
  # The last step lies in export alone; each of the last four is judged.
  [ "$(grep -h '^result ' soup.*.out | grep -o '"path":"[^"]*"' | sort -u | grep -cE '/(checkpoints/0000000(15|30|45)|export/000000060)"')" = 4 ]
  head -3 runs/tiny/text/test.en >three
  [ "$(apps/translate runs/chain/train/soup --beam 1 <three | wc -l)" = 3 ]
  python=${ARGOSY_DEPS:-$HOME/.cache/argosy}/judges/bin/python
  if [ -x "$python" ]; then "$python" -c "import ctranslate2; ctranslate2.Translator('runs/chain/train/ct2')"; fi
}
