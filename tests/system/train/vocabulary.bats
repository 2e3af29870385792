#!/usr/bin/env bats
# model.vocab_multiple other than the usual 64: trains, translates and exports.

load ../verses.sh

setup_file() {
  export WORK="$BATS_FILE_TMPDIR" APPS="$ARGOSY_BUILD_DIR/apps"
  cd "$WORK" && small_run 60
}

@test "a model whose rows are a multiple of 16, 64 or 256 trains, translates and exports" {
  cd "$WORK"
  for multiple in 16 64 256; do
    settings=(--set "run_dir=run$multiple" --set "model.vocab_multiple=$multiple" --set schedule.warmup=1 --set schedule.length=3
      --set telemetry.log_interval=1)
    "$APPS/train" config.json "${settings[@]}"
    head -2 train.en | "$APPS/translate" "run$multiple/export/000000003" --max-length 5 >"lines$multiple"
    [ "$(wc -l <"lines$multiple")" -eq 2 ]
    "$APPS/export" "run$multiple/export/000000003" --format ct2 --out "ct2-$multiple"
    [ -s "ct2-$multiple/model.bin" ]
    # The rows beyond the pieces carry nothing that training or search may use: all multiples give the same model.
    losses=$(grep -o '"loss":[0-9.]*' "run$multiple/metrics.jsonl")
    [ -n "$losses" ]
    [ "$losses" = "${first:=$losses}" ]
  done
}
