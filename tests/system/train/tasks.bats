#!/usr/bin/env bats
# Models whose tasks share parts of them: training, and what one task of them is to translate, export and soup.

load ../verses.sh

setup_file() {
  export WORK="$BATS_FILE_TMPDIR" APPS="$ARGOSY_BUILD_DIR/apps"
  cd "$WORK" && first_verses 60 verses
  local pair
  for pair in en-es en-up en-lo; do mkdir -p "text/$pair" && cp verses.en "text/$pair/train.en"; done
  cp verses.es text/en-es/train.es
  tr '[:lower:]' '[:upper:]' <verses.en >text/en-up/train.up
  tr '[:upper:]' '[:lower:]' <verses.en >text/en-lo/train.lo
  cat >tasks.json <<'JSON'
{ "run_dir": "run", "seed": 3, "precision": {"mode": "fp32"}, "schedule": {"lr": 2e-3, "warmup": 2, "length": 8},
  "data": {"tokenizer": "t.model", "shards": "shards", "tokenizer_training": {"vocab_size": 300}},
  "tasks": {"languages": ["en", "es", "up", "lo"], "pairs": ["en-es", "es-en", "en-up", "lo-en"],
            "files": {"train": "text/{sorted_pair}/train.{language}"}},
  "model": {"width": 32, "ff": 48, "heads": 2,
            "encoder": {"stacks": [{"layers": 1, "share": "source"}, {"layers": 1, "share": "all"}]},
            "decoder": {"stacks": [{"layers": 1, "share": "target"}]}},
  "batch": {"global_size": 2000, "micro_size": 500, "pool": 400},
  "checkpoint": {"interval": 4}, "telemetry": {"log_interval": 1} }
JSON
  "$APPS/preprocess" tasks.json 2>log && on 2 "$APPS/train" tasks.json 2>log
}

setup() { cd "$WORK" || return; }

ckpt=run/export/000000008
placement='placement={"en-es": [0], "es-en": [1], "en-up": [0], "lo-en": [0, 1]}'

translated() { # translated MODEL TARGET OPTIONS…: of the first two verses
  head -2 verses.en | "$APPS/translate" "$1" --source-prefix "<2$2>" --max-length 8 "${@:3}" 2>log
}

@test "a task is translated, scored and exported as a plain model, one that was not trained as well" {
  local task format
  for task in en-es lo-up; do
    translated "$ckpt" "${task#*-}" --task "$task" >lines
    [ "$(wc -l <lines)" -eq 2 ]
    grep -q "\"task\":\"$task\"" log
    for format in argosy hf ct2; do
      "$APPS/export" "$ckpt" --task "$task" --format "$format" --out "$task-$format" --verify 2>log
      grep -q "\"task\":\"$task\"" log
      translated "$task-$format" "${task#*-}" >same
      cmp lines same
    done
    "$APPS/translate" "$ckpt" --task "$task" --score --input verses.en --target verses.es --output scores 2>log
    "$APPS/translate" "$task-argosy" --score --input verses.en --target verses.es --output same 2>log
    cmp scores same
  done
  translated "$ckpt" es --task es-en >other
  run cmp -s other lines
  [ "$status" -eq 1 ]
}

@test "with embeddings by language a task has those of its two languages, in every format" {
  local own=(tasks.json --set run_dir=own --set model.embeddings.share=language) task=lo-up format
  "$APPS/train" "${own[@]}" --print-tasks 2>&1 | grep -q 'embeddings.es  *[0-9]*  en-es, es-en'
  on 2 "$APPS/train" "${own[@]}" 2>log
  translated own/export/000000008 up --task "$task" >lines
  run cmp -s lines <(translated "$ckpt" up --task "$task")
  [ "$status" -eq 1 ]
  for format in argosy hf ct2; do
    "$APPS/export" own/export/000000008 --task "$task" --format "$format" --out "own-$format" --verify 2>log
    translated "own-$format" up >same
    cmp lines same
  done
  "$APPS/export" own-hf --format ct2 --out own-again 2>log
  cmp own-ct2/model.bin own-again/model.bin
  on 2 "$APPS/soup" own/checkpoints/000000004 own/export/000000008 --out own-soup 2>log
  "$APPS/export" own-soup --task es-en --out own-es-en --verify 2>log
  run translated own/export/000000008 en --task up-en
  [ "$status" -eq 2 ]
  grep -q 'the task up-en reads up, which no task of the model does; its tasks are' log
}

@test "with a tokenizer for each language, each side of a task has its own in every format" {
  local own=(tasks.json --set run_dir=spm --set data.shards=spm-shards --set 'data.tokenizer=spm/{language}.model')
  run "$APPS/preprocess" "${own[@]}"
  [ "$status" -eq 2 ]
  [[ $output == *'data.tokenizer must be a name without {language}, since all languages have the same embeddings'* ]]
  own+=(--set model.embeddings.share=language)
  on 2 "$APPS/preprocess" "${own[@]}" 2>log
  [ "$(cd spm && echo *.model)" = 'en.model es.model lo.model up.model' ]
  run cmp -s spm/up.model spm/lo.model
  [ "$status" -eq 1 ]
  "$APPS/count" "${own[@]}" >table 2>log
  grep -q '"corpora":{"en-es":{"examples":60,' log
  "$APPS/preprocess" --show 1 "${own[@]}" 2>log | grep -q 'source  pieces <2up> '
  "$APPS/preprocess" --verify "${own[@]}" 2>log
  on 2 "$APPS/train" "${own[@]}" --set schedule.length=5 2>log
  on 2 "$APPS/train" "${own[@]}" 2>log
  local task=lo-up format
  translated spm/export/000000008 up --task "$task" >lines
  for format in argosy hf ct2; do
    "$APPS/export" spm/export/000000008 --task "$task" --format "$format" --out "spm-$format" --verify 2>log
    translated "spm-$format" up >same
    cmp lines same
  done
  cmp spm-ct2/source.spm spm/lo.model
  cmp spm-ct2/target.spm spm/up.model
  "$APPS/export" spm-hf --format ct2 --out spm-again 2>log
  cmp spm-ct2/model.bin spm-again/model.bin
  cmp spm-ct2/target_vocabulary.json spm-again/target_vocabulary.json
  on 2 "$APPS/soup" spm/checkpoints/000000004 spm/export/000000008 --out spm-soup 2>log
  "$APPS/export" spm-soup --task es-en --out spm-es-en --verify 2>log
  local two=("${own[@]}" --set 'tasks.pairs=["en-es"]' --set schedule.length=4 --set schedule.warmup=0)
  "$APPS/train" "${two[@]}" --set run_dir=two --set data.shards=two-shards --set data.mode=online 2>log
  "$APPS/soup" --out all --allow-cross-run --components two/export/000000004 spm/export/000000008 2>log
  translated all up --task "$task" >same
  cmp lines same
  "$APPS/train" "${two[@]}" --set run_dir=others --set data.shards=other-shards --set data.mode=online --set 'data.tokenizer=others/{language}.model' \
    --set data.tokenizer_training.sample_lines=50 2>log
  run "$APPS/soup" --out none --allow-cross-run --components others/export/000000004 spm/export/000000008
  [ "$status" -eq 3 ]
  [[ $output == *'has another tokenizer than the first input'* ]]
  run "$APPS/export" spm-hf --format argosy --vocab-trim verses.en --out none
  [ "$status" -eq 3 ]
  [[ $output == *'a vocabulary is changed of models that have one tokenizer, and this one has several'* ]]
}

@test "adapters of components are merged where a task is read, and written alone for peft" {
  local tuned=(tasks.json --set run_dir=tuned --set data.tokenizer_training=null --set "init_from=$ckpt" --set schedule.length=6
    --set lora.rank=2 --set 'lora.targets=["encoder.en", "decoder.es"]' --set optimizer.ema=0.9)
  on 2 "$APPS/train" "${tuned[@]}" --set "$placement" 2>log
  grep -q 'trained: .* adapters of rank 2' log
  local model=tuned/export/000000006 format
  translated "$ckpt" es --task en-es --scores >before
  translated "$model" es --task en-es --scores >lines
  run cmp -s before lines
  [ "$status" -eq 1 ]
  translated "$model" es --task en-es --scores --ema >mean_lines
  run cmp -s mean_lines lines
  [ "$status" -eq 1 ]
  translated "$model" en --task es-en --scores >lines
  cmp lines <(translated "$ckpt" en --task es-en --scores) # it has none
  run "$APPS/export" "$model" --task es-en --format peft --out none
  [ "$status" -eq 2 ]
  [[ $output == *'no part of the task es-en has adapters'* ]]
  run "$APPS/soup" "$model" "$ckpt" --allow-cross-run --out none
  [ "$status" -eq 3 ]
  [[ $output == *'merge them first: apps/export CHECKPOINT --task TASK --format argosy'* ]]
  "$APPS/export" "$ckpt" --task en-es --format hf --out peft-base 2>log
  for format in hf peft; do "$APPS/export" "$model" --task en-es --format $format --out "tuned-$format" 2>log; done
  judge peft peft-base tuned-peft tuned-hf
}

@test "a language that is restored from noise and other shares of the tasks go with stacks, and are said" {
  local more=(tasks.json --set run_dir=noisy --set data.shards=noisy-shards --set data.tokenizer=noisy.model --set 'tasks.denoise=["es"]'
    --set 'tasks.files.denoise=text/en-es/train.{language}' --set tasks.temperature=2 --set placement=auto --set loss.normalise=component)
  "$APPS/preprocess" "${more[@]}" 2>log
  on 2 "$APPS/train" "${more[@]}" 2>log
  grep -q 'the gradient of each component is divided by the tokens of its own tasks' log
  grep -q '"nll/es":' noisy/metrics.jsonl
  [ "$(grep -c 'tgt_tokens/s' log)" -ge 8 ] # a line a step
  "$APPS/train" "${more[@]}" --print-tasks 2>&1 | grep -q 'encoder.es .* es-en, es'
  translated noisy/export/000000008 es --task es >lines
}

@test "a task that lacks a component is refused, as are no task and a task of a plain model" {
  run translated "$ckpt" en --task up-en
  [ "$status" -eq 2 ]
  grep -q 'the task up-en needs the component encoder.up, which the model does not have; its tasks are en-es, en-up, es-en, lo-en' log
  run "$APPS/export" "$ckpt" --task en-xx --out none
  [ "$status" -eq 2 ]
  [[ $output == *'en-xx is neither a task of the model nor a pair of its languages (en, es, lo, up)'* ]]
  run "$APPS/export" "$ckpt" --out none
  [ "$status" -eq 2 ]
  [[ $output == *'is a model of several tasks: en-es, en-up, es-en, lo-en; give one with --task'* ]]
  run "$APPS/export" en-es-argosy --task en-es --out none
  [ "$status" -eq 2 ]
  [[ $output == *'has no tasks; leave --task out'* ]]
  [ ! -e none ]
}

@test "training goes on from a task as a plain model" {
  "$APPS/export" "$ckpt" --task en-es --print-model >model.json 2>log
  run grep -q stacks model.json
  [ "$status" -eq 1 ]
  local alone=(tasks.json --set run_dir=alone --set data.shards=alone-shards --set 'tasks.pairs=["en-es"]' --set data.tokenizer_training=null
    --set 'model.encoder={"layers": 2}' --set 'model.decoder={"layers": 1}')
  "$APPS/preprocess" "${alone[@]}" 2>log
  "$APPS/train" "${alone[@]}" --set init_from=en-es-argosy --set schedule.length=2 --set schedule.warmup=0 2>log
  grep -q 'init_from en-es-argosy: .* parameters loaded$' log
}

@test "soups of models with tasks have all of them, with --components also those of inputs with different tasks" {
  on 2 "$APPS/soup" --out mean run/checkpoints/000000004 "$ckpt" 2>log
  translated mean es --task en-es >lines
  "$APPS/soup" --check mean "$ckpt" 2>log
  local more=(tasks.json --set run_dir=more --set data.shards=more-shards --set data.tokenizer_training=null
    --set 'tasks.pairs=["en-es", "up-en"]' --set seed=4)
  "$APPS/preprocess" "${more[@]}" 2>log
  on 2 "$APPS/train" "${more[@]}" 2>log
  run "$APPS/soup" --out both --allow-cross-run "$ckpt" more/export/000000008
  [ "$status" -eq 3 ]
  [[ $output == *'has other tasks than the first input (added: up-en; missing: en-up, es-en, lo-en); give --components'* ]]
  on 2 "$APPS/soup" --out both --allow-cross-run --components "$ckpt" more/export/000000008 2>log
  grep -q 'encoder.up: the mean over 1 of 2 checkpoints' log
  for task in en-es lo-en up-en up-es es-up; do translated both "${task#*-}" --task "$task" >lines; done
}

@test "soup --validate evaluates each set by the route of its task, with the losses of the trainer" {
  head -20 verses.en >valid.en && head -20 verses.es >valid.es && tr '[:lower:]' '[:upper:]' <valid.en >valid.up
  local sets='[{"source": "valid.en", "target": "valid.es", "corpus": "en-es"}, {"source": "valid.en", "target": "valid.up", "corpus": "en-up"}]'
  local checked=(tasks.json --set run_dir=checked --set data.tokenizer_training=null --set validation.interval=4
    --set 'validation.metrics=["loss"]' --set "validation.sets=$sets") inputs=(checked/checkpoints/000000004 checked/export/000000008)
  on 2 "$APPS/train" "${checked[@]}" 2>log
  local ranks
  for ranks in 1 2; do
    on $ranks "$APPS/soup" --out "checked$ranks" --allow-worse "${inputs[@]}" --validate "${checked[@]}" 2>said
    python3 - <<'PYTHON'
import json, re
losses = dict(re.findall(r"(checked/\w+/\d+): validation loss ([\d.]+)", open("said").read()))
assert len(losses) == 2, losses
for folder, loss in losses.items():
    of_set = sorted(each["loss"] for each in json.load(open(f"{folder}/MANIFEST.json"))["metrics"].values())
    assert len(of_set) == 2 and of_set[0] < float(loss) < of_set[1], (folder, loss, of_set)
PYTHON
  done
  run "$APPS/soup" --out none "${inputs[@]}" --validate "${checked[@]}" --set 'tasks.pairs=["en-es", "en-up", "up-en"]' \
    --set 'validation.sets=[{"source": "valid.up", "target": "valid.en", "corpus": "up-en"}]'
  [ "$status" -eq 2 ]
  [[ $output == *'expected the name of a task of the model (corpus): en-es, en-up, es-en, lo-en, got up-en'* ]]
  [ ! -e none ]
}

@test "tasks on some ranks: --print-tasks and --dry-run say which, and the probe of memory measures them" {
  "$APPS/train" tasks.json --set "$placement" --ranks 2 --print-tasks 2>lines
  grep -Eq '^  encoder.es +[0-9]+  es-en; ranks 1$' lines
  grep -Eq '^  lo-en +[0-9]+  all, encoder.lo, decoder.en; ranks 0-1$' lines
  grep -Eq '^  all +[0-9]+  .*; all ranks$' lines
  "$APPS/train" tasks.json --set "$placement" --ranks 2 --dry-run --json >plan 2>log
  grep -q '"name": "round robin"' plan
  run "$APPS/train" tasks.json --set "$placement" --ranks 3 --print-tasks
  [ "$status" -eq 2 ]
  [[ $output == *'a task for each of the 3 ranks, got none for rank 2'* ]]
  on 2 "$APPS/train" tasks.json --set "$placement" --probe-memory 2>log
  grep -q '^result .*"status":"ok"' log
}

@test "what some ranks have trained is checked, averaged, exported and translated as any model" {
  on 2 "$APPS/train" tasks.json --set run_dir=placed --set "$placement" 2>log
  grep -q '"idle_share":' log
  grep -q '"ranks":\[1\]' placed/export/000000008/MANIFEST.json
  "$APPS/soup" --check placed/checkpoints/* placed/export/* 2>log
  on 2 "$APPS/soup" placed/checkpoints/000000004 placed/export/000000008 --recipe uniform --out soup-2 2>log
  "$APPS/soup" placed/checkpoints/000000004 placed/export/000000008 --recipe uniform --out soup-1 2>log
  local task=es-en
  for model in soup-1 soup-2; do translated "$model" en --task "$task" >"lines.$model"; done
  [ "$(wc -l <lines.soup-1)" -eq 2 ]
  cmp lines.soup-1 lines.soup-2
  translated placed/export/000000008 en --task "$task" >lines.placed
  "$APPS/export" placed/export/000000008 --task "$task" --format hf --out placed-hf --verify 2>log
  translated placed-hf en >lines
  cmp lines lines.placed
}

@test "each corpus has its loss and its share, where corpora share all blocks or the rows of a language model" {
  losses_add_up() { # losses_add_up RUN CORPORA: of each step, shares are a whole and their losses its loss
    python3 - "$1/metrics.jsonl" "$2" <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line for line in lines if "nll" in line]
corpora = {key.removeprefix("nll/") for line in steps for key in line if key.startswith("nll/")}
assert corpora == set(sys.argv[2].split()), corpora
for line in steps:
    shares = {name: line[f"share/{name}"] for name in corpora}
    assert abs(sum(shares.values()) - 1) < 1e-9, shares
    loss = sum(share * line[f"nll/{name}"] for name, share in shares.items() if share > 0)
    assert abs(loss - line["nll"]) < 1e-6, (loss, line)
    assert len(steps) > 7 and len({line[f"nll/{name}"] for name in corpora}) > 1, line
PYTHON
  }
  on 2 "$APPS/train" tasks.json --set run_dir=shared --set 'model.encoder.stacks=[{"layers": 1}]' --set 'model.decoder.stacks=[{"layers": 1}]' 2>log
  losses_add_up shared 'en-es es-en en-up lo-en'
  cat >lm.json <<'JSON'
{ "run_dir": "lm", "precision": {"mode": "fp32"}, "schedule": {"lr": 2e-3, "warmup": 2, "length": 8},
  "data": {"tokenizer": "lm.model", "shards": "lm-shards", "tokenizer_training": {"vocab_size": 400},
           "corpora": [{"name": "en", "source": "verses.en"}, {"name": "es", "source": "verses.es"}]},
  "model": {"type": "decoder", "width": 32, "ff": 48, "heads": 2, "decoder": {"layers": 1}},
  "batch": {"global_size": 2000, "micro_size": 500, "sequence_length": 100}, "telemetry": {"log_interval": 1} }
JSON
  "$APPS/preprocess" lm.json 2>log
  on 2 "$APPS/train" lm.json 2>log
  losses_add_up lm 'en es'
}
