# The three shapes of a target: argosy_module, argosy_app, argosy_test. Options and flags live in ArgosyToolchain.cmake.
include(GNUInstallDirs)
include(ArgosyLaunch)

# Modules that need LibTorch; -DARGOSY_TORCH=OFF leaves them out (sanitizer builds, login nodes). Side targets such as
# model_config are judged by what they link.
set(ARGOSY_TORCH_MODULES kernels model optim train decode)
define_property(GLOBAL PROPERTY ARGOSY_LEFT_OUT)

function(_argosy_left_out result)
  set(${result} FALSE PARENT_SCOPE)
  if(ARGOSY_TORCH)
    return()
  endif()
  get_property(left_out GLOBAL PROPERTY ARGOSY_LEFT_OUT)
  foreach(name IN LISTS ARGN)
    if(name IN_LIST ARGOSY_TORCH_MODULES OR name IN_LIST left_out OR name MATCHES "^LibTorch::")
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# argosy_module(<name> [FOLDER <folder under lib>] SOURCES … HEADERS … USES <our modules> [LIBS …] [PRIVATE_LIBS …])
# Static library argosy_<name>, alias argosy::<name>. LIBS are external and seen by users, PRIVATE_LIBS are not.
function(argosy_module name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "FOLDER" "SOURCES;HEADERS;USES;LIBS;PRIVATE_LIBS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "argosy_module(${name}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  _argosy_left_out(skip ${name} ${ARG_USES} ${ARG_LIBS} ${ARG_PRIVATE_LIBS})
  if(skip)
    set_property(GLOBAL APPEND PROPERTY ARGOSY_LEFT_OUT ${name})
    return()
  endif()
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${name})
  endif()
  set(folder ${PROJECT_SOURCE_DIR}/lib/${ARG_FOLDER})
  list(TRANSFORM ARG_SOURCES PREPEND ${folder}/ REGEX "^[^/]")
  list(TRANSFORM ARG_HEADERS PREPEND ${folder}/ REGEX "^[^/]")
  list(TRANSFORM ARG_USES PREPEND argosy::)

  set(scope PUBLIC)
  if(ARG_SOURCES)
    add_library(argosy_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(argosy_${name} PRIVATE $<BUILD_INTERFACE:argosy_warnings> ${ARG_PRIVATE_LIBS})
  else()
    add_library(argosy_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(argosy::${name} ALIAS argosy_${name})
  set_target_properties(argosy_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(argosy_${name} ${scope} cxx_std_20)
  target_sources(
    argosy_${name} ${scope}
    FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR}/lib
    FILES ${ARG_HEADERS})
  target_link_libraries(argosy_${name} ${scope} ${ARG_USES} ${ARG_LIBS})
  set_property(GLOBAL APPEND PROPERTY ARGOSY_MODULES ${name})
  set_property(TARGET argosy_${name} PROPERTY ARGOSY_FOLDER ${ARG_FOLDER})
  set_property(TARGET argosy_${name} PROPERTY ARGOSY_USES ${ARG_USES})
endfunction()

# argosy_check_direction(): stops when a module links one above it or an unlisted neighbour (lib/layers.txt).
function(argosy_check_direction)
  file(STRINGS ${PROJECT_SOURCE_DIR}/lib/layers.txt lines REGEX "^[a-z]")
  set(layer 0)
  foreach(line IN LISTS lines)
    if(line MATCHES "^([a-z]+) > ([a-z]+)$")
      list(APPEND sideways ${CMAKE_MATCH_1}>${CMAKE_MATCH_2})
    else()
      separate_arguments(folders UNIX_COMMAND "${line}")
      foreach(folder IN LISTS folders)
        set(layer_${folder} ${layer})
      endforeach()
      math(EXPR layer "${layer} + 1")
    endif()
  endforeach()

  get_property(modules GLOBAL PROPERTY ARGOSY_MODULES)
  foreach(module IN LISTS modules)
    get_property(from TARGET argosy_${module} PROPERTY ARGOSY_FOLDER)
    get_property(uses TARGET argosy_${module} PROPERTY ARGOSY_USES)
    if(NOT DEFINED layer_${from})
      message(FATAL_ERROR "lib/${from} is not in lib/layers.txt")
    endif()
    foreach(used IN LISTS uses)
      if(NOT TARGET ${used})
        message(FATAL_ERROR "argosy_module(${module}) uses ${used}, which no CMakeLists.txt defines")
      endif()
      get_property(to TARGET ${used} PROPERTY ARGOSY_FOLDER)
      if(NOT from STREQUAL to AND NOT layer_${to} LESS layer_${from} AND NOT "${from}>${to}" IN_LIST sideways)
        message(FATAL_ERROR "argosy_module(${module}) uses ${used}: lib/${from} may not see lib/${to} (lib/layers.txt)")
      endif()
    endforeach()
  endforeach()
endfunction()

# argosy_app(<tool> USES <modules>): apps/<tool>.cpp, built as apps/<tool> in the build tree, to which apps/<tool> of the
# source tree is linked, so that `mpirun apps/soup ckpts/*` works as typed.
function(argosy_app tool)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "USES;LIBS")
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/apps/${tool}.cpp)
    return()
  endif()
  _argosy_left_out(skip ${ARG_USES} ${ARG_LIBS})
  if(skip)
    return()
  endif()
  list(TRANSFORM ARG_USES PREPEND argosy::)
  set(target argosy_app_${tool}) # `export`, `train` and `count` are too common as target names
  add_executable(${target} ${PROJECT_SOURCE_DIR}/apps/${tool}.cpp)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${tool} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/apps)
  target_compile_options(${target} PRIVATE ${ARGOSY_QUICKLY_COMPILED}) # command lines, not loops
  target_link_libraries(${target} PRIVATE argosy_warnings ${ARG_USES} ${ARG_LIBS} argosy::config argosy::version
                                          CLI11::CLI11)
  if(ARGOSY_LINK_APPS)
    add_custom_command(
      TARGET ${target}
      POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:${target}> ${PROJECT_SOURCE_DIR}/apps/${tool}
      VERBATIM)
  endif()
  set_property(GLOBAL APPEND PROPERTY ARGOSY_APPS ${target})
endfunction()

# argosy_test(<module> SOURCES … USES <modules> [LIBS …] [RANKS 1 2 3 4] [LABELS …] [TIMEOUT s])
# One binary, one ctest each rank count. The kind is the folder under tests/: unit (unit.<module>, one rank), mpi
# (<module>.np<N>, through mpiexec), system, fault. Labels: the kind and np<N>.
function(argosy_test module)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT" "SOURCES;USES;LIBS;RANKS;LABELS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "argosy_test(${module}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  _argosy_left_out(skip ${ARG_USES} ${ARG_LIBS})
  if(skip)
    return()
  endif()
  file(RELATIVE_PATH place ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" kind ${place})
  if(NOT kind MATCHES "^(unit|mpi|system|fault)$")
    message(FATAL_ERROR "argosy_test(${module}) belongs in tests/unit, tests/mpi, tests/system or tests/fault")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(ARGOSY_SANITIZE) # which is 2 to 5 times as slow; a limit is there to end what hangs
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  list(TRANSFORM ARG_USES PREPEND argosy::)
  set(target ${kind}_${module})
  add_executable(${target} ${ARG_SOURCES})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${kind})
  if(NOT kind STREQUAL "system") # which needs the tools
    add_dependencies(argosy_tests ${target})
  endif()
  target_link_libraries(${target} PRIVATE argosy_warnings ${ARG_USES} ${ARG_LIBS} GTest::gmock GTest::gtest)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${target} PRIVATE ${ARGOSY_QUICKLY_COMPILED}) # assertions, not loops
  if(kind STREQUAL "unit" AND TARGET argosy_test_messages)
    target_link_libraries(${target} PRIVATE argosy_test_messages)
  endif()
  if(kind STREQUAL "mpi" OR ARG_RANKS)
    target_link_libraries(${target} PRIVATE argosy_test_mpi_main)
  else()
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
  endif()

  if(kind STREQUAL "mpi" AND NOT ARG_RANKS)
    set(ARG_RANKS 1 2 3 4)
  endif()
  if(NOT ARG_RANKS)
    add_test(NAME ${kind}.${module} COMMAND ${ARGOSY_TEST_LAUNCHER} $<TARGET_FILE:${target}>)
    _argosy_test_properties(${kind}.${module} 1 "${ARGOSY_TEST_PROGRAM_ENVIRONMENT}")
  endif()
  foreach(ranks IN LISTS ARG_RANKS)
    set(name ${kind}.${module}.np${ranks})
    if(kind STREQUAL "mpi")
      set(name ${module}.np${ranks})
    endif()
    add_test(NAME ${name} COMMAND ${ARGOSY_TEST_LAUNCHER} ${ARGOSY_MPIEXEC} -n ${ranks} $<TARGET_FILE:${target}>)
    _argosy_test_properties(${name} ${ranks} "${ARGOSY_TEST_PROGRAM_ENVIRONMENT}")
  endforeach()
endfunction()

# argosy_script_test(<name> SCRIPT <file.bats> [NEEDS <programs>] [LABELS …] [TIMEOUT s] [LONG]): <kind>.<name>, a bats file;
# skipped without bats or without one of the programs. LONG: of the long column, as tests labelled full.
set(ARGOSY_NEEDS ${PROJECT_SOURCE_DIR}/tests/support/needs)
function(argosy_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "LONG" "SCRIPT;TIMEOUT" "LABELS;NEEDS")
  if(ARGOSY_SANITIZE OR NOT ARGOSY_TORCH) # scripts run the whole suite of tools
    return()
  endif()
  file(RELATIVE_PATH place ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" kind ${place})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(when)
  if(ARG_LONG)
    set(when CONFIGURATIONS full)
    list(APPEND ARG_LABELS full)
  endif()
  add_test(NAME ${kind}.${name} COMMAND ${ARGOSY_NEEDS} bats ${ARG_NEEDS} -- bats --print-output-on-failure
                                        ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${when})
  _argosy_test_properties(${kind}.${name} 1 "${ARGOSY_TEST_ENVIRONMENT}")
endfunction()

# Environment every test runs in: one thread a rank, waiting threads do not spin, shared-memory transports only, no colour.
set(ARGOSY_TEST_ENVIRONMENT
    "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive;UCX_TLS=self,sm;UCX_LOG_LEVEL=error;ARGOSY_SOURCE_DIR=${PROJECT_SOURCE_DIR};ARGOSY_BUILD_DIR=${PROJECT_BINARY_DIR};ARGOSY_MPIEXEC=${ARGOSY_MPIEXEC}"
)
# And test programs: what they write is tested, not the disk.
set(ARGOSY_TEST_PROGRAM_ENVIRONMENT "${ARGOSY_TEST_ENVIRONMENT}")
if(EXISTS /dev/shm)
  list(APPEND ARGOSY_TEST_PROGRAM_ENVIRONMENT TMPDIR=/dev/shm)
endif()
if(ARGOSY_SANITIZE)
  set(ARGOSY_TEST_LAUNCHER ${PROJECT_SOURCE_DIR}/tests/support/sanitized)
endif()
macro(_argosy_test_properties name ranks environment)
  set_tests_properties(
    ${name}
    PROPERTIES LABELS "${kind};np${ranks};${ARG_LABELS}"
               TIMEOUT ${ARG_TIMEOUT}
               PROCESSORS ${ranks}
               ENVIRONMENT "${environment}")
  if(kind STREQUAL "unit")
    get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ARGOSY_TESTED_MODULE=${folder})
  endif()
  if("gpu" IN_LIST ARG_LABELS) # all that may be skipped where nothing else may
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment};ARGOSY_MAY_SKIP=1")
  endif()
endmacro()
