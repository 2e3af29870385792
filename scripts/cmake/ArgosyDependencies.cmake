# External libraries as targets named alike whatever their packager ships (CMake config, pkg-config file or neither).
# scripts/setup installs all of them on Debian 12; elsewhere CMAKE_PREFIX_PATH and PKG_CONFIG_PATH find a site's own.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# argosy_pkg_config(<target> <module>…): Argosy::<target> from the first pkg-config module that exists.
function(argosy_pkg_config name)
  if(TARGET Argosy::${name})
    return()
  endif()
  foreach(module IN LISTS ARGN)
    pkg_check_modules(ARGOSY_${name} QUIET IMPORTED_TARGET GLOBAL ${module})
    if(ARGOSY_${name}_FOUND)
      add_library(Argosy::${name} ALIAS PkgConfig::ARGOSY_${name})
      return()
    endif()
  endforeach()
  list(JOIN ARGN " or " wanted)
  message(FATAL_ERROR "Argosy needs the library ${wanted} (pkg-config): run scripts/setup, or load the site's module")
endfunction()

argosy_pkg_config(mpi mpich) # by name: `mpi` may be another vendor's
argosy_pkg_config(hdf5 hdf5-serial hdf5)
argosy_pkg_config(sentencepiece sentencepiece)
argosy_pkg_config(xxhash libxxhash)
find_program(ARGOSY_MPIEXEC NAMES mpiexec.mpich mpiexec.hydra REQUIRED)

find_package(Boost 1.81 REQUIRED COMPONENTS json)
if(NOT TARGET Argosy::boost_json)
  add_library(Argosy::boost_json INTERFACE IMPORTED GLOBAL)
  target_link_libraries(Argosy::boost_json INTERFACE Boost::headers Boost::json)
endif()

find_path(ARGOSY_RANDOM123_INCLUDE Random123/philox.h REQUIRED)
if(NOT TARGET Argosy::random123)
  add_library(Argosy::random123 INTERFACE IMPORTED GLOBAL)
  target_include_directories(Argosy::random123 SYSTEM INTERFACE ${ARGOSY_RANDOM123_INCLUDE})
endif()

find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
if(ARGOSY_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
if(ARGOSY_TORCH)
  find_package(LibTorch 2.11.0 REQUIRED)
endif()
