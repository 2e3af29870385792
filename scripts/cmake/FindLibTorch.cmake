# Finds LibTorch without its own TorchConfig.cmake, which refuses a machine that has no CUDA toolkit.
#
# Looked for in LIBTORCH_ROOT (-D or environment), else where scripts/setup puts it. Both layouts work: the wheel's
# {torch,nvidia} side by side, and a folder that itself has include/ and lib/ (libtorch.zip, a site's install).
# Gives LibTorch::cpu, and LibTorch::cuda where libtorch_cuda.so is present; LibTorch_LIBRARY_DIR and
# LibTorch_NVIDIA_DIR (may be empty) for installing.
if(NOT LIBTORCH_ROOT)
  if(DEFINED ENV{LIBTORCH_ROOT})
    set(LIBTORCH_ROOT $ENV{LIBTORCH_ROOT})
  elseif(DEFINED ENV{ARGOSY_DEPS})
    set(LIBTORCH_ROOT $ENV{ARGOSY_DEPS}/libtorch-${LibTorch_FIND_VERSION})
  else()
    set(LIBTORCH_ROOT $ENV{HOME}/.cache/argosy/libtorch-${LibTorch_FIND_VERSION})
  endif()
endif()
set(LIBTORCH_ROOT ${LIBTORCH_ROOT} CACHE PATH "Folder of LibTorch: has torch/ (wheel layout) or include/ and lib/")

find_path(
  LibTorch_INCLUDE_DIR ATen/core/Tensor.h
  PATHS ${LIBTORCH_ROOT}/torch/include ${LIBTORCH_ROOT}/include
  NO_DEFAULT_PATH)
find_library(
  LibTorch_CPU_LIBRARY torch_cpu
  PATHS ${LIBTORCH_ROOT}/torch/lib ${LIBTORCH_ROOT}/lib ${LIBTORCH_ROOT}/lib64
  NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY)

if(LibTorch_INCLUDE_DIR)
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS ${LibTorch_INCLUDE_DIR}/${header})
      file(STRINGS ${LibTorch_INCLUDE_DIR}/${header} lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      string(REGEX REPLACE "[^;0-9]" "" lines "${lines}")
      string(REPLACE ";" "." LibTorch_VERSION "${lines}")
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "looked in ${LIBTORCH_ROOT}: run scripts/setup, or give -DLIBTORCH_ROOT=<folder of LibTorch>")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  get_filename_component(LibTorch_LIBRARY_DIR ${LibTorch_CPU_LIBRARY} DIRECTORY)
  set(LibTorch_NVIDIA_DIR)
  if(EXISTS ${LIBTORCH_ROOT}/nvidia)
    set(LibTorch_NVIDIA_DIR ${LIBTORCH_ROOT}/nvidia)
  endif()
  set(_suffix ${CMAKE_SHARED_LIBRARY_SUFFIX})

  add_library(LibTorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(
    LibTorch::c10
    PROPERTIES IMPORTED_LOCATION ${LibTorch_LIBRARY_DIR}/libc10${_suffix}
               INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
               INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
               "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
               # its include/ brings an fmt of its own, newer than the system's library: use whichever is found header-only
               INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1;FMT_HEADER_ONLY=1")
  add_library(LibTorch::cpu SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::cpu PROPERTIES IMPORTED_LOCATION ${LibTorch_CPU_LIBRARY})
  target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10)
  # Without OpenMP, at::parallel_for, which is a template, runs on one thread.
  target_compile_options(LibTorch::cpu INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  target_link_options(LibTorch::cpu INTERFACE -fopenmp)
  # libtorch_cpu.so finds libcudart and libcupti by its own rpath; GNU ld checks them at link time as well.
  if(LibTorch_NVIDIA_DIR)
    file(GLOB _nvidia_dirs ${LibTorch_NVIDIA_DIR}/*/lib)
    foreach(dir IN LISTS _nvidia_dirs)
      target_link_options(LibTorch::cpu INTERFACE LINKER:-rpath-link,${dir})
    endforeach()
  endif()
  target_link_options(LibTorch::cpu INTERFACE LINKER:-rpath-link,${LibTorch_LIBRARY_DIR})

  if(EXISTS ${LibTorch_LIBRARY_DIR}/libtorch_cuda${_suffix} AND EXISTS ${LibTorch_LIBRARY_DIR}/libc10_cuda${_suffix})
    add_library(LibTorch::c10_cuda SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::c10_cuda PROPERTIES IMPORTED_LOCATION ${LibTorch_LIBRARY_DIR}/libc10_cuda${_suffix})
    add_library(LibTorch::cuda SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::cuda PROPERTIES IMPORTED_LOCATION ${LibTorch_LIBRARY_DIR}/libtorch_cuda${_suffix})
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::c10_cuda LibTorch::cpu)
  endif()
endif()
