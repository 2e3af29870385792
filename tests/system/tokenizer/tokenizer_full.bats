#!/usr/bin/env bats
# The long version of tokenizer.bats: as many lines as are promised.

bats_require_minimum_version 1.5.0

load ../verses.sh

@test "ids and texts of 10,000 lines of many scripts are those of the library tokenizers" {
  cd "$BATS_TEST_TMPDIR"
  first_verses 1000 verses
  cat verses.en verses.es >both
  judge tokenizer "$ARGOSY_BUILD_DIR/tests/system/tokenize" both 10000
}
