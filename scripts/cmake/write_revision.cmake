# Writes the version header at build time, and touches it only when the revision changed, so that one file recompiles.
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE revision
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE failed)
if(failed OR NOT EXISTS ${SOURCE_DIR}/.git)
  set(revision "unknown")
endif()
set(text "#pragma once\n#define ARGOSY_VERSION \"${VERSION}\"\n#define ARGOSY_REVISION \"${revision}\"\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
