#!/usr/bin/env bats
# The chain on the committed verses, once for a translation model and once for a language model: count → preprocess → train →
# soup → export → translate, from a folder that holds configs/ and apps/ as a clone does. CTranslate2 judges the exports.

bats_require_minimum_version 1.5.0

load ../verses.sh

setup_file() {
  cd "$BATS_FILE_TMPDIR" && like_a_clone
  on 2 apps/count configs/tiny.json
  on 2 apps/preprocess configs/tiny.json
  train_tiny
  on 2 apps/soup runs/tiny/train/checkpoints/* --out runs/tiny/soup
  on 1 apps/preprocess configs/tiny_lm.json
  on 1 apps/train configs/tiny_lm.json --set schedule.length=60 --set precision.mode=fp32
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

train_tiny() {
  on 2 apps/train configs/tiny.json --set schedule.length=160 --set validation.interval=50 --set optimizer.ema=0.95
}

@test "training leaves the newest checkpoints, an export and finite figures" {
  [ "$(ls runs/tiny/train/checkpoints)" = "$(printf '%s\n' 000000050 000000100 000000150)" ]
  [ "$(ls runs/tiny/train/export)" = 000000160 ]
  python3 - <<'PYTHON'
import json
lines = [json.loads(line) for line in open("runs/tiny/train/metrics.jsonl")]
losses = [line["nll"] for line in lines if "nll" in line]
assert len(losses) == 8 and losses[-1] < losses[0] - 1, losses
assert json.load(open("runs/tiny/train/status.json"))["state"] == "done"
PYTHON
}

@test "a second call of a finished training changes nothing" {
  before=$(find runs/tiny/train/checkpoints runs/tiny/train/export -type f -exec sha256sum {} + | sort | sha256sum)
  train_tiny
  [ "$(find runs/tiny/train/checkpoints runs/tiny/train/export -type f -exec sha256sum {} + | sort | sha256sum)" = "$before" ]
}

@test "an export has the same bytes on one, two and three ranks" {
  for ranks in 1 2 3; do
    on $ranks apps/export runs/tiny/soup --format ct2 --out ct2.$ranks
    (cd ct2.$ranks && sha256sum --quiet --check SHA256SUMS)
  done
  cmp ct2.1/SHA256SUMS ct2.2/SHA256SUMS
  cmp ct2.1/SHA256SUMS ct2.3/SHA256SUMS
}

@test "an export is read back and compared, on one and three ranks, and is a model itself" {
  for format in ct2 hf argosy; do
    for ranks in 1 3; do
      ARGOSY_EXIT_FILE=$PWD/exit run -0 --separate-stderr on $ranks apps/export runs/tiny/soup --format $format --verify --out verified.$format.$ranks
      # shellcheck disable=SC2154 # assigned by run --separate-stderr
      [[ $stderr == *'"verified":true,"tensors_compared":'* ]]
    done
  done
  cmp verified.ct2.1/SHA256SUMS verified.ct2.3/SHA256SUMS
  on 1 apps/export runs/tiny_lm/train/export/* --quantization int8 --verify --out verified.lm
  on 2 apps/export verified.ct2.1 --verify --out verified.again
  cmp verified.ct2.1/SHA256SUMS verified.again/SHA256SUMS
  head -5 runs/tiny/text/test.en >five.en
  for model in runs/tiny/soup verified.ct2.1 verified.hf.1 verified.argosy.3; do on 1 apps/translate "$model" --scores <five.en >"five.${model//\//.}"; done
  for model in verified.{ct2.1,hf.1,argosy.3}; do cmp five.runs.tiny.soup "five.$model"; done
  ARGOSY_EXIT_FILE=$PWD/exit run --separate-stderr on 2 apps/translate verified.lm --input five.en --output never
  [[ $stderr == *"rounded to int8"* ]]
  [ "$(cut -d' ' -f1 exit)" = 2 ]
}

@test "the running mean of the weights is judged, averaged, exported and translated with" {
  local last=runs/tiny/train/checkpoints/000000150
  run -0 on 2 apps/soup runs/tiny/train/checkpoints/* --ema --validate configs/tiny.json --allow-worse --out means
  echo "$output" >said
  python3 - "$last" <<'PYTHON'
import json, sys
result = json.loads(open("said").read().split("result ", 1)[1])
judged = {loss["path"]: loss["loss"] for loss in result["losses"]}[sys.argv[1]]
metrics = json.load(open(sys.argv[1] + "/MANIFEST.json"))["metrics"]
weights, mean = (metrics[name]["loss"] for name in sorted(metrics, key=len))
assert abs(judged - mean) < abs(judged - weights) / 10, (judged, mean, weights)
PYTHON
  on 1 apps/export "$last" --out ct2.weights
  on 2 apps/export "$last" --ema --out ct2.mean
  on 1 apps/export means --out ct2.means
  [ "$(sha256sum ct2.{weights,mean,means}/model.bin | cut -d' ' -f1 | sort -u | wc -l)" = 3 ]
  head -3 runs/tiny/text/test.en >three.en
  on 1 apps/translate "$last" --scores <three.en >scores
  on 1 apps/translate "$last" --ema --scores <three.en >scores.mean
  run ! cmp -s scores scores.mean
}

@test "an export never overwrites" {
  mkdir -p taken
  ARGOSY_EXIT_FILE=$PWD/exit run --separate-stderr on 2 apps/export runs/tiny/soup --out taken
  # shellcheck disable=SC2154 # assigned by run --separate-stderr
  [[ $stderr == *"taken"* ]]
  [ "$(cut -d' ' -f1 exit)" = 2 ]
  [ -z "$(ls -A taken)" ]
}

@test "a format that export does not know is refused with the names of those it knows" {
  ARGOSY_EXIT_FILE=$PWD/exit run --separate-stderr on 2 apps/export runs/tiny/soup --format gguf --out unknown
  [[ $stderr == *"--format gguf is unknown; the formats are ct2"* ]]
  [ "$(cut -d' ' -f1 exit)" = 2 ]
  [ ! -e unknown ]
}

@test "translations keep their order and do not depend on the number of ranks" {
  { head -20 runs/tiny/text/test.en && echo && tail -20 runs/tiny/text/test.en; } >in.en
  for ranks in 1 3; do on $ranks apps/translate runs/tiny/soup --beam 2 --input in.en --output out.$ranks; done
  cmp out.1 out.3
  [ "$(wc -l <out.1)" = 41 ]
  [ -z "$(sed -n 21p out.1)" ] # an empty line stays empty
  head -1 in.en | on 1 apps/translate runs/tiny/soup --beam 2 >first
  [ "$(cat first)" = "$(head -1 out.1)" ]
  on 1 apps/translate runs/tiny/soup --scores --input in.en --output fp32
  for precision in int8 bf16; do
    for ranks in 1 3; do on $ranks apps/translate runs/tiny/soup --precision $precision --scores --input in.en --output $precision.$ranks; done
    cmp $precision.1 $precision.3
    run ! cmp -s $precision.1 fp32 # scores differ
  done
}

@test "bf16 needs a CPU with bf16 products" {
  ARGOSY_CPU_KERNELS=baseline ARGOSY_EXIT_FILE=$PWD/exit run --separate-stderr on 2 apps/translate runs/tiny/soup --precision bf16 <runs/tiny/text/test.en
  [[ $stderr == *"--precision bf16: expected a CPU with bf16 products (AVX512-BF16 or AMX), got baseline; use fp32 or int8"* ]]
  [ "$(cut -d' ' -f1 exit)" = 5 ]
}

@test "samples and lists of hypotheses do not depend on the number of ranks" {
  head -30 runs/tiny/text/test.en >thirty.en
  sample=(--sample --nbest 3 --temperature 0.9 --top-k 50 --top-p 0.95 --max-length 30)
  for ranks in 1 2 3; do on $ranks apps/translate runs/tiny/soup "${sample[@]}" --seed 5 --input thirty.en --output sample.$ranks; done
  cmp sample.1 sample.2
  cmp sample.1 sample.3
  [ "$(cut -d' ' -f1 sample.1 | uniq -c | awk '{print $1}' | sort -u)" = 3 ]
  on 1 apps/translate runs/tiny/soup "${sample[@]}" --seed 6 --input thirty.en --output reseeded
  run ! cmp -s sample.1 reseeded
  on 1 apps/translate runs/tiny/soup --sample --temperature 0.9 --top-k 50 --top-p 0.95 --max-length 30 --seed 5 <thirty.en >first
  cmp first <(awk -F ' \\|\\|\\| ' '!seen[$1]++ {print $2}' sample.1)
  for ranks in 1 3; do on $ranks apps/translate runs/tiny/soup --nbest 4 --input thirty.en --output nbest.$ranks; done
  cmp nbest.1 nbest.3
  on 1 apps/translate runs/tiny/soup --scores <thirty.en >best
  cmp best <(awk -F ' \\|\\|\\| ' '!seen[$1]++ {print $4 "\t" $2}' nbest.1)
}

@test "translations begin as they must and end where they must" {
  head -12 runs/tiny/text/test.en >twelve.en
  for n in $(seq 12); do if ((n % 3)); then echo "Y la"; else echo; fi; done >prefixes
  for ranks in 1 3; do on $ranks apps/translate runs/tiny/soup --prefix prefixes --max-length 20 --input twelve.en --output begun.$ranks; done
  cmp begun.1 begun.3
  [ "$(grep -c '^Y la' begun.1)" -ge 8 ]
  on 1 apps/translate runs/tiny/soup --prefix prefixes --omit-prefix --max-length 20 <twelve.en >rest
  [ "$(sed 's/^Y la//' begun.1 | tr -d ' ' | sed -n 1p)" = "$(tr -d ' ' <rest | sed -n 1p)" ]
  lm=$(echo runs/tiny_lm/train/export/*)
  on 1 apps/translate "$lm" --beam 1 --max-length 20 --max-length-factor 0 <twelve.en >whole
  on 2 apps/translate "$lm" --beam 1 --max-length 20 --max-length-factor 0 --stop e --stop t --input twelve.en --output cut
  sed 's/[et].*//' whole | cmp - cut
}

@test "a translation scores as its search says, and a line that cannot be scored is named" {
  on 1 apps/translate runs/tiny/soup --beam 1 --nbest 1 <runs/tiny/text/test.en >listed
  sed -E 's/^[0-9]+ \|\|\| (.*) \|\|\| F0=.*/\1/' listed >found
  for ranks in 1 3; do on $ranks apps/translate runs/tiny/soup --score --token-scores --target found --input runs/tiny/text/test.en --output scored.$ranks; done
  cmp scored.1 scored.3
  paste runs/tiny/text/test.en found | on 2 apps/translate runs/tiny/soup --score --token-scores >scored.pairs
  cmp scored.1 scored.pairs
  python3 - <<'PYTHON'
found = [float(line.split("F0= ")[1].split(" ")[0]) for line in open("listed")]
scored = [line.split("\t") for line in open("scored.1")]
for_eos = [float(line[4].split()[-1]) for line in scored]  # which a search does not reach if the length ends it
whole = [abs(a - float(b[0])) < 1e-3 for a, b in zip(found, scored, strict=True)]
cut = [abs(a - float(b[0]) + eos) < 1e-3 for a, b, eos in zip(found, scored, for_eos)]
# Other pieces may spell what the search has found.
assert sum(whole) + sum(cut) > 0 and all(b[3] == "1" for a, b in zip(whole, scored) if a), (found, scored)
PYTHON
  head -3 found >short
  ARGOSY_EXIT_FILE=$PWD/exit run --separate-stderr on 2 apps/translate runs/tiny/soup --score --target short --input runs/tiny/text/test.en
  [[ $stderr == *"short: expected "*" lines, as many as the input has, got 3"* ]]
  [ "$(cut -d' ' -f1 exit)" = 3 ]
}

@test "a line that comes through a pipe is translated at once" {
  mkfifo arriving
  apps/translate runs/tiny/soup <arriving >answers 3>&- &
  exec 7>arriving
  for n in 1 2 3; do
    sed -n ${n}p runs/tiny/text/test.en >&7
    until [ "$(wc -l <answers)" = $n ]; do sleep 0.05; done
  done
  exec 7>&-
  wait $!
}

@test "a file is translated on several ranks however long it is, and appears when it is whole" {
  head -c 300000 /dev/zero | tr '\0' '\n' >many # more than launchers hold for a rank that is busy
  on 2 apps/translate runs/tiny/soup --input many --output many.out
  cmp many many.out
  for _ in $(seq 200); do cat runs/tiny/text/test.en; done >long
  echo old >kept
  apps/translate runs/tiny/soup --beam 8 --input long --output kept 3>&- &
  tool=$!
  until compgen -G 'kept.tmp-*' >/dev/null; do sleep 0.05; done
  kill -KILL $tool
  wait $tool || true
  [ "$(cat kept)" = old ]
  [ "$(compgen -G 'kept.tmp-*' | wc -l)" = 1 ]
}

@test "translations that cannot be printed are an error, and a closed input is no empty one" {
  head -3 runs/tiny/text/test.en >lines
  for how in '<lines >/dev/full' '<lines >&-' '<&-'; do
    ARGOSY_EXIT_FILE=$PWD/exit run -4 --separate-stderr sh -c "exec apps/translate runs/tiny/soup $how"
    [ "$(cut -d' ' -f1 exit)" = 4 ]
    [[ $stderr == *"standard "* ]]
    rm exit
  done
}

@test "options that do not go together are refused" {
  while read -r words sentence; do
    # shellcheck disable=SC2086 # several options
    ARGOSY_EXIT_FILE=$PWD/exit run --separate-stderr on 1 apps/translate runs/tiny/soup ${words//,/ } <runs/tiny/text/test.en
    [[ $stderr == *"$sentence"* ]]
    [ "$(cut -d' ' -f1 exit)" = 2 ]
  done <<'CASES'
--score,--beam,2 --score translates nothing; omit --beam
--top-k,3 --top-k requires --sample
--sample,--beam,2 --beam excludes --sample
--nbest,5 --nbest 5 is more than the hypotheses of --beam 4
--omit-prefix --omit-prefix needs --target-prefix or --prefix
--token-scores --token-scores requires --score
CASES
}

@test "each search option changes what it names" {
  head -10 runs/tiny/text/test.en >ten.en
  on 1 apps/translate runs/tiny/soup --scores <ten.en >plain
  for option in "--beam 1" "--length-penalty 0" "--patience 0.25" "--max-length 5" "--max-length-factor 0.1" "--min-length 60" \
    "--length-penalty-type wu" "--word-penalty -1" "--no-repeat-ngram 1" "--repetition-penalty 2" "--sample" "--stop e" \
    "--source-prefix ▁" "--target-prefix ▁"; do
    # shellcheck disable=SC2086 # an option and its value
    on 1 apps/translate runs/tiny/soup $option --scores <ten.en >changed
    run ! cmp -s plain changed
  done
}

@test "CTranslate2 translates the export as we do, greedy and with a beam" {
  on 2 apps/export runs/tiny/soup --format ct2 --out judged
  judge ctranslate2 apps/translate runs/tiny/soup judged runs/tiny/text/test.en runs/tiny/text/test.es
}

@test "CTranslate2 continues text with the language model's export as we do" {
  model=runs/tiny_lm/train/export/000000060
  on 2 apps/export "$model" --format ct2 --out judged_lm
  cut -d' ' -f1-6 runs/tiny/text/test.en | head -40 >prompts
  judge ctranslate2 apps/translate "$model" judged_lm prompts
}

@test "weights are exported in the type of training, also of a soup" {
  on 2 apps/train configs/tiny.json --set run_dir=runs/half --set precision.mode=bf16 --set schedule.length=3 --set schedule.warmup=1 --set checkpoint.interval=1
  on 1 apps/soup runs/half/checkpoints/* --out half
  on 1 apps/export half --format hf --out half.hf 2>said
  grep -q "weights are written as bfloat16, in which the model was trained" said
  grep -q '"torch_dtype":"bfloat16"' half.hf/config.json
}

@test "every quantization loads and is as large as its parameters make it" {
  for type in float32 float16 bfloat16 int8 int8_float16 int8_bfloat16 int16; do
    on 1 apps/export runs/tiny/soup --out "ct2.$type" --quantization $type
    python3 - "$type" <<'PYTHON'
import json, math, sys
kind, folder = sys.argv[1], "ct2." + sys.argv[1]
live = len(json.load(open(folder + "/shared_vocabulary.json")))
matrices = rows = vectors = names = width = 0
for parameter in json.load(open("runs/tiny/soup/MANIFEST.json"))["params"]:
    shape, name = parameter["shape"], parameter["name"]
    if "embeddings" in name or "projection" in name:
        shape[0] = live  # the export leaves the vocabulary's padding out
    names += len(name)
    if len(shape) == 2:
        matrices, rows = matrices + math.prod(shape), rows + shape[0]
        width = shape[1] if "embeddings" in name else width
        names += len(name)  # of the scales
    else:
        vectors += shape[0]
floats = vectors + 2 * 2048 * width  # and the positions of encoder and decoder
float_size = 2 if "float16" in kind else 4
if kind.startswith("int8"):
    size = matrices + 4 * rows + float_size * floats  # a scale a row
elif kind == "int16":
    size = 2 * matrices + 4 * floats
else:
    size = float_size * (matrices + floats)
model = open(folder + "/model.bin", "rb").read()
# Each variable has a head of at most 20 bytes next to its name, and there are about 40 small numbers.
assert size < len(model) < size + names + 8192, (kind, size, len(model))
at = model.index(b"decoder/embeddings/weight\0") + len(b"decoder/embeddings/weight\0")  # then rank, dimensions, type
assert model[at] == 2 and model[at + 9] == {"float32": 0, "int8": 1, "int16": 2, "float16": 4, "bfloat16": 5}[kind.split("_")[0]], model[at + 9]
PYTHON
    python=${ARGOSY_DEPS:-$HOME/.cache/argosy}/judges/bin/python
    if [ -x "$python" ]; then "$python" -c "import ctranslate2; ctranslate2.Translator('ct2.$type')"; fi
  done
}

@test "transformers opens the exported models and translates and continues as apps/translate does" {
  head -40 runs/tiny/text/test.en >forty.en
  on 2 apps/export runs/tiny/soup --format hf --out hf.marian
  on 1 apps/export runs/tiny/soup --format hf --quantization bfloat16 --out hf.bf16
  judge hf apps/translate runs/tiny/soup hf.marian forty.en hf.bf16
  judge hf apps/translate hf.bf16 hf.bf16 forty.en # both widen its weights
  on 2 apps/export runs/tiny_lm/train/export/* --format hf --max-shard-size 500kB --out hf.llama
  [ -e hf.llama/model-00001-of-00006.safetensors ] && [ -e hf.llama/model.safetensors.index.json ]
  on 1 apps/export runs/tiny_lm/train/export/* --format hf --quantization bfloat16 --out hf.llama16
  cut -d' ' -f1-6 forty.en >prompts # after a whole line the model may say nothing
  judge hf apps/translate runs/tiny_lm/train/export/* hf.llama prompts hf.llama16
}

@test "a tokenizer.json serves for preparation, training and translation, and is exported as it is" {
  tr '\0' '\n' <"$ARGOSY_SOURCE_DIR/tests/fuzz/corpus/tokenizer/byte_level" | head -n 1 >like_llama3.json
  settings=()
  for setting in run_dir=runs/json data.tokenizer=like_llama3.json data.shards=runs/json.shards data.tokenizer_training=null \
    'model.token_ids={"bos": 266, "eos": 267}' schedule.length=10 schedule.warmup=2 precision.mode=fp32; do
    settings+=(--set "$setting")
  done
  on 2 apps/preprocess configs/tiny_lm.json "${settings[@]}"
  on 2 apps/train configs/tiny_lm.json "${settings[@]}"
  export=$(echo runs/json/export/*)
  cmp like_llama3.json "$export/tokenizer.model"
  head -n 3 runs/tiny/text/test.en >three.en
  on 1 apps/translate "$export" --input three.en --output three.out
  [ "$(wc -l <three.out)" -eq 3 ]
  for format in hf ct2; do
    on 1 apps/export "$export" --format $format --out json.$format
    cmp like_llama3.json json.$format/tokenizer.json
  done
  on 1 apps/export --from hf:json.hf --format argosy --out json.back
  on 1 apps/translate json.back --input three.en --output back.out
  cmp three.out back.out
}

@test "an imported model is a checkpoint: averaged, exported and translated with on any number of ranks" {
  on 2 apps/export runs/tiny/soup --format hf --out hf.back
  for ranks in 1 3; do on $ranks apps/export --from hf:hf.back --format argosy --out "back.$ranks"; done
  cmp back.1/shard-00000-of-00001.h5 back.3/shard-00000-of-00001.h5
  on 2 apps/soup --check back.1
  head -40 runs/tiny/text/test.en >forty.en
  on 2 apps/translate runs/tiny/soup --input forty.en --output soup.fr
  on 2 apps/translate back.3 --input forty.en --output back.fr
  cmp soup.fr back.fr
  on 2 apps/export back.1 --format hf --out hf.again
  cmp hf.back/SHA256SUMS hf.again/SHA256SUMS
  for format in hf ct2; do
    on 2 apps/export hf.back --format $format --out "direct.$format"
    on 1 apps/export runs/tiny/soup --format $format --out "soup.$format"
    cmp "direct.$format/SHA256SUMS" "soup.$format/SHA256SUMS"
  done
}

tuned() { # tuned NAME INIT_FROM SETTING…: the first 20 steps of a run that begins with other weights
  local settings=()
  for setting in run_dir="runs/$1" init_from="$2" schedule.length=20 schedule.warmup=5 schedule.lr=1e-3 telemetry.log_interval=1 "${@:3}"; do
    settings+=(--set "$setting")
  done
  run on 2 apps/train configs/tiny.json "${settings[@]}"
}
losses() { # of each step of a run
  python3 -c 'import json, sys; print(*[line["loss"] for line in map(json.loads, open(sys.argv[1])) if "nll" in line])' "runs/$1/metrics.jsonl"
}

@test "a run begins with the weights of a checkpoint, a soup or a Hugging Face folder, and goes on without them" {
  trained=runs/tiny/train/export/000000160
  on 2 apps/export $trained --format hf --out hf.tuned
  tuned from_checkpoint $trained && [ "$status" = 0 ]
  [[ $output == *"init_from $trained: "*" parameters loaded"* ]]
  tuned from_hf hf.tuned && [ "$status" = 0 ]
  [ "$(losses from_checkpoint)" = "$(losses from_hf)" ]
  apps/export hf.tuned --print-model >printed.json
  tuned from_printed hf.tuned model="$(python3 -c 'import json; print(json.dumps(json.load(open("printed.json"))["model"]))')"
  [ "$status" = 0 ] && [ "$(losses from_printed)" = "$(losses from_hf)" ]
  run apps/export hf.tuned && [ "$status" = 2 ] && [[ $output == *"--out is required"* ]]
  tuned from_soup runs/tiny/soup && [ "$status" = 0 ]
  for name in from_checkpoint from_soup; do
    python3 - "runs/$name/metrics.jsonl" <<'PYTHON'
import json, sys
ended = [line["loss"] for line in map(json.loads, open("runs/tiny/train/metrics.jsonl")) if "nll" in line][-1]
begun = [line["loss"] for line in map(json.loads, open(sys.argv[1])) if "nll" in line]
assert abs(begun[0] - ended) < 0.3 and len(begun) == 20, (ended, begun)
assert sum(begun[-5:]) < sum(begun[:5]), begun
PYTHON
  done
  mv hf.tuned hf.gone
  tuned from_hf hf.tuned schedule.length=25 && [ "$status" = 0 ] # resumes
  grep -q "initial weights from hf.tuned" runs/from_hf/export/*25/MANIFEST.json
}

@test "weights that do not fit are refused by name, unless new ones are allowed" {
  trained=runs/tiny/train/export/000000160
  tuned refused "$trained" model.heads=4 && [ "$status" != 0 ] && [[ $output == *"model.heads: 4, there 2"* ]]
  tuned refused "$trained" model.encoder.position=learned && [ "$status" != 0 ]
  [[ $output == *"model.encoder.position: learned, there sinusoidal"* ]]
  tuned moved "{\"from\": \"$trained\", \"reinit_positions\": true}" model.encoder.position=learned
  [ "$status" = 0 ] && [[ $output == *"new, with random values: encoder/position_encodings/encodings"* ]]
  tuned refused "$trained" data.tokenizer_training=null 'model.token_ids={"eos": 0, "unk": 1, "start": 3}' && [ "$status" != 0 ]
  [[ $output == *"model.token_ids: eos 0, unk 1, bos none, pad none, start 3, there eos 0, unk 1, bos none, pad 1023, start 1023"* ]]
  tuned refused "$trained" model.encoder.layers=3 && [ "$status" != 0 ] && [[ $output == *"it has no encoder/layer_2/"* ]]
  tuned grown "{\"from\": \"$trained\", \"allow_new\": true}" model.encoder.layers=3
  [ "$status" = 0 ] && [[ $output == *"new, with random values: encoder/layer_2/"* ]]
  tuned part "{\"from\": \"$trained\", \"components\": [\"encoder\"]}" model.decoder.layers=1
  [ "$status" = 0 ] && [[ $output == *"new, with random values: decoder/embeddings/weight"* ]]
  tuned refused runs/tiny_lm/train/export/000000060 && [ "$status" != 0 ] && [[ $output == *"the model is another one"* ]]
  tuned refused /nowhere && [ "$status" != 0 ] && [[ $output == *"/nowhere"* ]]
  tuned refused '[]' && [ "$status" != 0 ] && [[ $output == *"init_from"* ]]
  tuned refused '{"form": "x"}' && [ "$status" != 0 ] && [[ $output == *"form"* ]]
}

@test "a vocabulary is trimmed to a text, on which the model translates as before" {
  for language in en es; do head -100 runs/tiny/text/train.$language >hundred.$language; done
  for ranks in 1 2; do on $ranks apps/export runs/tiny/soup --format argosy --vocab-trim hundred.en hundred.es --verify --out trimmed.$ranks 2>said; done
  cmp trimmed.1/shard-00000-of-00001.h5 trimmed.2/shard-00000-of-00001.h5
  cmp trimmed.1/vocab_map.json trimmed.2/vocab_map.json
  [ "$(grep -c 'share one matrix' said)" = 1 ]
  python3 - <<'PYTHON'
import json
figures = json.loads(open("said").read().split("result ", 1)[1])["vocabulary"]
assert figures["pieces_before"] == 1000 and 300 < figures["pieces_after"] < 800, figures
assert figures["lines"] == figures["same_lines"] == 100 and figures["length_before"] == figures["length_after"], figures
PYTHON
  for model in soup trimmed; do
    folder=trimmed.1
    [ $model = trimmed ] || folder=runs/tiny/soup
    on 2 apps/translate "$folder" --beam 1 --max-length 30 --input hundred.en --output "hundred.$model"
  done
  cmp hundred.soup hundred.trimmed
  lm=$(echo runs/tiny_lm/train/export/*)
  on 2 apps/export "$lm" --format hf --vocab-trim hundred.en --verify --out trimmed.lm
  on 1 apps/export "$lm" --format ct2 --vocab-trim hundred.en --verify --out trimmed.lm.ct2
  [ -e trimmed.lm/vocab_map.json ]
  for folder in trimmed.lm trimmed.lm.ct2; do on 1 apps/translate "$folder" --beam 1 --max-length 20 --max-length-factor 0 <hundred.en >"continued.$folder"; done
  cmp continued.trimmed.lm continued.trimmed.lm.ct2
}

@test "a vocabulary is extended, and training goes on with it" {
  tr -c 'A-Za-z\n' ' ' <runs/tiny/text/train.en | tr ' ' '\n' | grep -E '^[a-z]{4,}$' | sort | uniq -c | sort -k1,1nr -k2 | awk '{print " " $2}' | head -300 >pieces
  on 2 apps/export runs/tiny/soup --format argosy --vocab-extend pieces --vocab-text runs/tiny/text/test.en --out extended 2>said
  python3 - <<'PYTHON'
import json
figures = json.loads(open("said").read().split("result ", 1)[1])["vocabulary"]
assert figures["pieces_after"] == 1300 - figures["skipped"] and figures["length_after"] < figures["length_before"] - 0.5, figures
PYTHON
  settings=()
  for setting in data.tokenizer=extended/tokenizer.model data.tokenizer_training=null data.shards=runs/extended/shards run_dir=runs/extended/train \
    init_from=extended schedule.length=20 schedule.warmup=5 schedule.lr=1e-3 telemetry.log_interval=1; do
    settings+=(--set "$setting")
  done
  on 1 apps/preprocess configs/tiny.json "${settings[@]}"
  run -0 on 2 apps/train configs/tiny.json "${settings[@]}"
  [[ $output == *"init_from extended: "*" parameters loaded"* ]]
  python3 - <<'PYTHON'
import json
begun = [line["loss"] for line in map(json.loads, open("runs/extended/train/metrics.jsonl")) if "nll" in line]
assert len(begun) == 20 and sum(begun[-5:]) < sum(begun[:5]), begun
PYTHON
  printf '  heaven\n' >never
  ARGOSY_EXIT_FILE=$PWD/exit run --separate-stderr on 2 apps/export runs/tiny/soup --vocab-extend never --vocab-text runs/tiny/text/test.en --out refused
  [[ $stderr == *"never: the tokenizer would never make the piece"* ]]
  [ "$(cut -d' ' -f1 exit)" = 3 ]
  [ ! -e refused ]
}
