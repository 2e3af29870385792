# Compiler, linker and flags for our own code, in one place. No fast-math and no -march here: bits must not depend on
# the machine that compiled; kernels name their instruction sets per file.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON) # the static modules also go into libargosy_cuda.so
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)
# Line tables only: a stack trace names file and line, objects of LibTorch units stay small.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG -g1")
# What has no loops of its own takes half the time to compile so.
set(ARGOSY_QUICKLY_COMPILED $<$<CONFIG:Release>:-O1>)
if(ARGOSY_SANITIZE MATCHES "undefined") # in tests' own code, half the time would go to these checks
  set(ARGOSY_QUICKLY_COMPILED -fno-sanitize=undefined)
endif()
if(NOT ARGOSY_SANITIZE) # the sanitizers' presets bring their own
  set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
endif()

find_program(ARGOSY_CCACHE ccache)
if(ARGOSY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source tree count as relative, so that clones and work trees share what one of them has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  ${ARGOSY_CCACHE})
endif()
find_program(ARGOSY_MOLD mold)
if(ARGOSY_MOLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
endif()

add_library(argosy_warnings INTERFACE)
target_compile_options(
  argosy_warnings
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Woverloaded-virtual>
            # A unity build includes sources, whose anonymous types GCC then takes for a header's.
            $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>
            # GCC 12 sees overlaps and overflows in inlined std::string code that are not there (GCC bug 105651).
            $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${ARGOSY_WERROR}>>:-Werror;-Wno-error=restrict;-Wno-error=stringop-overflow;-Wno-error=maybe-uninitialized>)

if(ARGOSY_SANITIZE)
  add_compile_options(-fsanitize=${ARGOSY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ARGOSY_SANITIZE})
endif()

# libargosy_cuda.so is built where nvcc of LibTorch's CUDA is found (auto), always (ON: an error where it is not), or never.
set(ARGOSY_CUDA AUTO CACHE STRING "Build the CUDA plug-in: AUTO, ON or OFF")
set(wanted_cuda_major 13) # of the pinned LibTorch wheel
if(ARGOSY_CUDA AND NOT ARGOSY_SANITIZE)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  set(problem "no nvcc")
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(problem)
    if(NOT CMAKE_CUDA_COMPILER_VERSION MATCHES "^${wanted_cuda_major}\\.")
      set(problem "nvcc ${CMAKE_CUDA_COMPILER_VERSION}, and LibTorch is built for CUDA ${wanted_cuda_major}")
    endif()
  endif()
  if(problem AND NOT ARGOSY_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "ARGOSY_CUDA=${ARGOSY_CUDA}, but: ${problem}")
  elseif(problem)
    message(STATUS "Without libargosy_cuda.so: ${problem}")
    set(ARGOSY_CUDA OFF)
  endif()
else()
  set(ARGOSY_CUDA OFF)
endif()
set(CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR}/lib) # where kernels/plugin.cpp finds the plug-in
