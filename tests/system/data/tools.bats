#!/usr/bin/env bats
# apps/count and apps/preprocess as a user calls them: figures, result line, exit file, one sentence for each kind of bad input.

bats_require_minimum_version 1.5.0

load ../verses.sh

setup() {
  cd "$BATS_TEST_TMPDIR" || return
  apps=${ARGOSY_BUILD_DIR:?}/apps
  first_verses 400 verses
  export XDG_CACHE_HOME=$BATS_TEST_TMPDIR/user ARGOSY_EXIT_FILE=$BATS_TEST_TMPDIR/exit
  cat >mt.json <<'JSON'
{ // small
  "run_dir": "run",
  "data": {"tokenizer": "run/spm.model", "shards": "run/shards", "tokenizer_training": {"vocab_size": 400},
    "corpora": [{"name": "verses", "languages": ["en", "es"], "source": "verses.en", "target": "verses.es"}]},
}
JSON
}

# shellcheck disable=SC2154 # stderr is set by run
result() { # the value of a key in the result line, the last of stderr
  tail -n 1 <<<"$stderr" | sed -n 's/^result //p' | python3 -c "import json, sys; print(json.load(sys.stdin)$1)"
}

refused() { # refused CODE TEXT COMMAND…: ends with the code, in the exit file too, and says the text
  local code=$1 text=$2
  shift 2
  run --separate-stderr "$@"
  [ "$(cut -d' ' -f1 exit)" = "$code" ]
  [[ $stderr == *"$text"* ]]
  [ "$(result "['code']")" = "$code" ]
}

@test "count says what wc says, on one rank and on three" {
  wc=$(LC_ALL=C.UTF-8 wc -lwmcL verses.en verses.es | awk '{print $1, $2, $3, $4, $5}')
  for ranks in 1 3; do
    run --separate-stderr on "$ranks" "$apps/count" --content-hash verses.en verses.es
    [ "$status" -eq 0 ]
    [ "$(tail -n +2 <<<"$output" | awk '{print $1, $3, $4, $5, $6}')" = "$wc" ]
    [ "$(result "['files'][0]['cached']")" = False ]
  done
  run --separate-stderr on 2 "$apps/count" verses.en verses.es
  [ "$(result "['files'][0]['cached']")" = True ]
  [ -d user/argosy/count ]
}

@test "count warns of invalid UTF-8 and counts an empty file as nothing" {
  printf 'good\nb\377d\n' >bad
  : >empty
  run --separate-stderr "$apps/count" bad empty
  [ "$status" -eq 0 ]
  [[ $stderr == *"bad is not valid UTF-8 at line 2, byte 6"* ]]
  [ "$(result "['files'][1]['lines']")" = 0 ]
}

@test "preprocess makes tokenizer and shards; count then knows the tokens" {
  run --separate-stderr on 2 "$apps/preprocess" mt.json
  [ "$status" -eq 0 ]
  [ "$(result "['corpora'][0]['examples']")" = 400 ]
  [ "$(result "['tokenizer_trained']")" = True ]
  [[ $stderr == *"verses 0 source: pieces "*"text In the beginning God created the heaven and the earth."* ]]
  tokens=$(result "['corpora'][0]['tgt_tokens']")
  run --separate-stderr "$apps/preprocess" mt.json
  [ "$(result "['shards_kept']")" = 1 ]
  [ "$(result "['tokenizer_trained']")" = False ]
  run --separate-stderr "$apps/count" mt.json
  [ "$(result "['corpora']['verses']['tgt_tokens']")" = "$tokens" ]
  [ "$(result "['files'][0]['cached']")" = True ]
}

@test "preprocess keeps a tokenizer that other text or settings would replace, unless it is asked to" {
  "$apps/preprocess" mt.json
  sums=$(cat run/spm.model* run/shards/{index.json,*.tokens} | cksum)
  refused 2 "replace it with --retrain-tokenizer" on 2 "$apps/preprocess" mt.json --set data.tokenizer_training.vocab_size=410
  head -300 verses.en >fewer.en
  head -300 verses.es >fewer.es
  fewer=(--set data.corpora.0.source=fewer.en --set data.corpora.0.target=fewer.es)
  refused 2 "replace it with --retrain-tokenizer" "$apps/preprocess" mt.json "${fewer[@]}"
  [ "$(cat run/spm.model* run/shards/{index.json,*.tokens} | cksum)" = "$sums" ]
  run --separate-stderr on 2 "$apps/preprocess" mt.json "${fewer[@]}" --retrain-tokenizer
  [ "$status" -eq 0 ]
  [ "$(result "['tokenizer_trained']")" = True ]
  run --separate-stderr "$apps/preprocess" mt.json "${fewer[@]}"
  [ "$(result "['shards_kept']")" = 1 ]
}

@test "count reads standard input and compressed files, and counts tokens by any tokenizer" {
  gzip -c verses.en >verses.en.gz
  run --separate-stderr on 2 "$apps/count" --content-hash verses.en verses.en.gz
  [ "$status" -eq 0 ]
  [ "$(result "['files'][0]['digest']")" = "$(result "['files'][1]['digest']")" ]
  digest=$(result "['files'][0]['digest']")
  run --separate-stderr "$apps/count" - <verses.en
  [ "$(result "['files'][0]['digest']")" = "$digest" ]
  for tool in count preprocess; do
    refused 3 "at most 9999 bytes (data.unpacked_limit)" "$apps/$tool" mt.json --set data.corpora.0.source=verses.en.gz \
      --set data.unpacked_limit=9999
  done
  "$apps/preprocess" mt.json
  refused 2 "--tokenizer: expected files, got standard input" "$apps/count" --tokenizer run/spm.model - <verses.en
  run --separate-stderr on 3 "$apps/count" --tokenizer run/spm.model verses.en verses.en.gz
  [ "$status" -eq 0 ]
  tokens=$(result "['corpora']['$PWD/verses.en']['tgt_tokens']")
  [ "$(result "['corpora']['$PWD/verses.en.gz']['tgt_tokens']")" = "$tokens" ]
  [[ $output == *"examples with fewer tokens than this"* ]]
  rm run/shards/index.json # no shards tell the tokens
  run --separate-stderr on 2 "$apps/count" mt.json
  [ "$(result "['corpora']['verses']['src_tokens']")" = "$tokens" ]
  [ "$(result "['corpora']['verses']['examples']")" = 400 ]
  echo '{"source": "", "target": ""}' >empty.jsonl
  run --separate-stderr on 2 "$apps/count" mt.json --set data.corpora.0.source=empty.jsonl --set data.corpora.0.target=null
  [ "$status" -eq 0 ]
  [[ $stderr == *"empty.jsonl has no tokens; preprocess will refuse it"* ]]
}

@test "preprocess reads compressed records from several files, and says where one is broken" {
  mkdir parts
  paste verses.en verses.es | head -200 | gzip >parts/1.tsv.gz
  paste verses.en verses.es | tail -200 >parts/2.tsv
  tsv=(--set 'data.corpora=[{"name": "verses", "languages": ["en", "es"], "source": "parts/*", "format": "tsv"}]')
  run --separate-stderr "$apps/preprocess" mt.json
  tokens=$(result "['corpora'][0]['tgt_tokens']")
  run --separate-stderr on 2 "$apps/preprocess" mt.json "${tsv[@]}" --set data.tokenizer_training=null
  [ "$status" -eq 0 ]
  [ "$(result "['corpora'][0]['examples']")" = 400 ]
  [ "$(result "['corpora'][0]['tgt_tokens']")" = "$tokens" ]
  [ "$(find run/cache/unpacked -type f | wc -l)" = 1 ]
  echo 'one column' >>parts/2.tsv
  refused 3 "2.tsv line 201, byte " on 2 "$apps/preprocess" mt.json "${tsv[@]}" --set data.tokenizer_training=null
  refused 3 "no file matches none/*" "$apps/preprocess" mt.json --set 'data.corpora.0.source=none/*'
  head -c 1000 parts/1.tsv.gz >parts/1.tsv
  refused 4 "expected a whole compressed file" "$apps/preprocess" mt.json "${tsv[@]}" --set data.tokenizer_training=null
}

@test "count and preprocess refuse text that comes through a pipe" {
  refused 3 "got a pipe or a device" "$apps/count" <(cat verses.en)
  refused 3 "got a pipe or a device" "$apps/preprocess" mt.json --set data.corpora.0.source=<(cat verses.en)
  mkfifo pipe
  refused 3 "got a pipe or a device" on 2 "$apps/count" verses.en pipe
}

@test "count goes without tokens where the shards are of an older version" {
  "$apps/preprocess" mt.json
  sed -i 's/"version": [0-9]*/"version": 1/' run/shards/index.json
  run --separate-stderr "$apps/count" mt.json
  [ "$status" -eq 0 ]
  [[ $stderr == *"tokens are not counted: "*"run preprocess again with the same configuration"* ]]
}

killed_at() { # killed_at FILE: preprocess from the beginning, killed as soon as there is FILE; again where it was faster
  local tool code
  for _ in {1..20}; do
    rm -rf run
    "$apps/preprocess" mt.json 2>/dev/null &
    tool=$!
    for _ in {1..6000}; do
      [ ! -e "$1" ] || break
      sleep 0.005
    done
    kill -KILL "$tool" || true
    code=0
    wait "$tool" || code=$?
    if [ "$code" -eq 137 ]; then return 0; fi
  done
  return 1
}

@test "preprocess killed while it works goes on with the same command" {
  "$apps/preprocess" mt.json
  sums=$(cat run/spm.model run/shards/{index.json,*.tokens} | cksum)
  for file in run run/spm.model; do
    killed_at "$file"
    run --separate-stderr "$apps/preprocess" mt.json
    [ "$status" -eq 0 ]
    [ "$(cat run/spm.model run/shards/{index.json,*.tokens} | cksum)" = "$sums" ]
  done
}

@test "the examples in the log of preprocess are cut" {
  { yes word | head -n 20000 | tr '\n' ' ' && echo; } >long
  "$apps/preprocess" mt.json
  run --separate-stderr "$apps/preprocess" mt.json --set data.corpora.0.source=long --set data.corpora.0.target=long \
    --set data.tokenizer_training=null
  [ "$status" -eq 0 ]
  [ "$(result "['corpora'][0]['src_tokens']")" -gt 20000 ]
  [ "${#stderr}" -lt 10000 ]
}

@test "each kind of bad input gets one sentence and its code" {
  refused 3 "absent: expected a text file, got no such file" "$apps/count" absent
  refused 3 "a folder" "$apps/count" .
  refused 2 "--content-hash" "$apps/count" --content-hsh verses.en
  refused 2 "CONFIG is missing" "$apps/preprocess"
  refused 2 "unknown key data.workrs; did you mean data.workers?" "$apps/preprocess" mt.json --set data.workrs=3
  refused 2 "1 to 256" "$apps/preprocess" mt.json --set data.workers=0
  refused 2 "lower vocab_size" "$apps/preprocess" mt.json --set data.tokenizer_training.vocab_size=30000
  yes '' | head -400 >blank
  refused 3 "blank: expected a text with words" "$apps/preprocess" mt.json --set data.corpora.0.target=blank
  head -399 verses.es >short.es
  refused 3 "got 400 and 399" on 2 "$apps/preprocess" mt.json --set data.corpora.0.target=short.es
  : >empty
  refused 3 "an empty file" on 2 "$apps/preprocess" mt.json --set data.corpora.0.target=empty
  refused 3 "no such file" on 2 "$apps/preprocess" mt.json --set data.corpora.0.source=absent
  sed '7s/e/\xff/' verses.es >bad.es
  refused 3 "bad.es line 7, byte" on 2 "$apps/preprocess" mt.json --set data.corpora.0.target=bad.es
  run --separate-stderr "$apps/preprocess" mt.json --set data.corpora.0.target=bad.es --set data.invalid_utf8=replace
  [ "$status" -eq 0 ]
  printf 'no model' >foreign.model
  refused 2 "exists, but preprocess did not train it" "$apps/preprocess" mt.json --set data.tokenizer=foreign.model
  refused 3 "a SentencePiece model" "$apps/preprocess" mt.json --set data.tokenizer=foreign.model --set data.tokenizer_training=null
  refused 4 "mt.json/shards cannot be " "$apps/preprocess" mt.json --set data.shards=mt.json/shards --retrain-tokenizer
}

@test "preprocess warns of a corpus that loses most of its lines, and names the filters that leave nothing" {
  sed -i 's/"verses.es"/"verses.es", "transforms": [{"type": "length_ratio", "threshold": 1.05}, {"type": "max_length", "source": 40}]/' mt.json
  run --separate-stderr "$apps/preprocess" mt.json
  [ "$status" -eq 0 ]
  [[ $stderr =~ verses:\ [5-9][0-9]\.[0-9]\ %\ of\ the\ lines\ are\ left\ out\ \([0-9]+\ by\ [a-z_]+,\ [0-9]+\ by\ [a-z_]+\) ]]
  [ "$(result "['corpora'][0]['dropped']['length_ratio']")" -gt 0 ]
  refused 3 'corpus verses: its transforms leave out all of its 400 lines: 400 by max_length; see' \
    "$apps/preprocess" mt.json --set data.corpora.0.transforms='[{"type": "max_length", "source": 1}]' --set data.shards=other
}

@test "preprocess --show prints examples before and after each transform and writes nothing" {
  sed -i 's/"vocab_size": 400/"vocab_size": 400, "symbols": ["<sep>"]/' mt.json
  run --separate-stderr "$apps/preprocess" mt.json
  [ "$status" -eq 0 ]
  find run -type f | sort >before
  run --separate-stderr on 2 "$apps/preprocess" --show 2 mt.json --set data.corpora.0.transforms='[{"type": "case"}, {"type": "max_length", "source": 10}]'
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = "verses, example 1" ]
  [ "${lines[1]}" = "    source  $(head -n 1 verses.en)" ]
  [ "${lines[3]}" = "  case" ]
  [ "${lines[4]}" = "    source  $(head -n 1 verses.en | tr '[:upper:]' '[:lower:]')" ]
  [ "${lines[6]}" = "  subword" ]
  [[ ${lines[7]} == "    source  pieces ▁"*" | ids "*" | text "* ]]
  [[ ${lines[9]} == "  max_length: left out: "*" pieces, at most 10 and 200" ]]
  [ "${lines[10]}" = "verses, example 2" ]
  find run -type f | sort | diff before -
  refused 2 'show' "$apps/preprocess" --show 0 mt.json
  refused 3 'the tokenizer does not exist; run preprocess' "$apps/preprocess" --show 1 mt.json --set data.tokenizer=none.model
}

@test "preprocess puts lines of the same document before a line" {
  printf 'A first line.\nAnd one more.\n\nThe next document.\nAnd its end.\n' >short.en
  cp short.en short.es
  run --separate-stderr "$apps/preprocess" mt.json --set data.corpora.0.transforms='[{"type": "context", "source_previous": 2}]'
  [ "$status" -eq 0 ]
  run --separate-stderr "$apps/preprocess" --set data.shards=short mt.json --set data.tokenizer_training=null \
    --set data.corpora.0.source=short.en --set data.corpora.0.target=short.es \
    --set data.corpora.0.transforms='[{"type": "context", "source_previous": 2}]'
  [ "$status" -eq 0 ]
  [[ $stderr == *"verses 0 source:"*" | text A first line."* ]]
  [[ $stderr == *"verses 1 source:"*"<sep>"*" | text "*"A first line."*"And one more."* ]]
  [[ $stderr != *"verses 2 source:"*"<sep>"*"verses 2 target"* ]]
  [[ $stderr == *"verses 2 source:"*" | text The next document."* ]]
}

@test "tasks are corpora in all directions, whose sources begin with the language to write" {
  python3 - >tasks.json <<'PY'
import json
print(json.dumps({"run_dir": "run", "tasks": {"languages": ["en", "es"], "files": {"train": "verses.{language}"}},
    "data": {"tokenizer": "run/spm.model", "shards": "run/shards", "tokenizer_training": {"vocab_size": 400}}}))
PY
  run --separate-stderr on 2 "$apps/preprocess" tasks.json
  [ "$status" -eq 0 ]
  [ "$(result "['corpora'][0]['name']")" = en-es ]
  [ "$(result "['corpora'][1]['name']")" = es-en ]
  [ "$(result "['corpora'][1]['examples']")" = 400 ]
  [[ $stderr == *"es-en"*"pieces <2en>"* ]]
}
