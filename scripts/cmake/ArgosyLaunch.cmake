# argosy_is_mpich(<result> <program>): for find_program(); another MPI's mpiexec starts every rank as a world of its own.
function(argosy_is_mpich result program)
  execute_process(COMMAND ${program} --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(NOT said MATCHES "HYDRA|MPICH")
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_program(ARGOSY_MPIEXEC NAMES mpiexec mpiexec.hydra mpiexec.mpich NAMES_PER_DIR VALIDATOR argosy_is_mpich)

# Every test runs through tests/support/launch, which finds the cases that it skips; ctest lists them at its end, whoever calls
# it. add_test() itself is redefined, so that no test can leave the launcher out.
function(add_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME" "COMMAND;CONFIGURATIONS")
  if(NOT DEFINED ARG_NAME OR NOT DEFINED ARG_COMMAND OR DEFINED ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_test: NAME, COMMAND and CONFIGURATIONS are all that tests here take, got ${ARGV}")
  endif()
  list(GET ARG_COMMAND 0 program)
  if(TARGET ${program})
    list(REMOVE_AT ARG_COMMAND 0)
    list(PREPEND ARG_COMMAND $<TARGET_FILE:${program}>)
  endif()
  set(when)
  if(DEFINED ARG_CONFIGURATIONS)
    set(when CONFIGURATIONS ${ARG_CONFIGURATIONS})
  endif()
  _add_test(NAME ${ARG_NAME} COMMAND ${ARGOSY_LAUNCH} ${ARGOSY_SKIP_RECORDS} ${ARG_NAME} ${ARG_COMMAND} ${when})
  set_tests_properties(${ARG_NAME} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

set(ARGOSY_LAUNCH ${CMAKE_CURRENT_LIST_DIR}/../../tests/support/launch)
cmake_path(NORMAL_PATH ARGOSY_LAUNCH)
set(ARGOSY_SKIP_RECORDS ${PROJECT_BINARY_DIR}/Testing/skipped)
file(
  WRITE ${PROJECT_BINARY_DIR}/CTestCustom.cmake
  "set(CTEST_CUSTOM_PRE_TEST [[\"${ARGOSY_LAUNCH}\" --clear \"${ARGOSY_SKIP_RECORDS}\"]])
set(CTEST_CUSTOM_POST_TEST [[\"${ARGOSY_LAUNCH}\" --list \"${ARGOSY_SKIP_RECORDS}\"]])
")
