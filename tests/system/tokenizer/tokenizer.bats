#!/usr/bin/env bats
# Hugging Face's library judges how Argosy reads tokenizer.json.

bats_require_minimum_version 1.5.0

load ../verses.sh

@test "ids and texts are those of the library tokenizers, for each kind of tokenizer.json" {
  cd "$BATS_TEST_TMPDIR"
  first_verses 1000 verses
  cat verses.en verses.es >both
  judge tokenizer "$ARGOSY_BUILD_DIR/tests/system/tokenize" both 600
}
