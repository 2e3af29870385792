# External libraries as targets named alike whatever their packager ships (CMake config, pkg-config file or neither).
# scripts/setup installs all of them on Debian 12; elsewhere CMAKE_PREFIX_PATH and PKG_CONFIG_PATH find a site's own. What is
# missing is named all at once, by Debian's packages; scripts/setup, which asks by scripts/setup.d/libraries, reads the names in
# ARGOSY_MISSING_FILE instead.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
set(ARGOSY_MISSING)

# argosy_need(<Debian package> <package> [<argument>…]): find_package(), and a note where it finds nothing. A macro: variables of
# find_package() are for the caller.
macro(argosy_need debian package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    list(APPEND ARGOSY_MISSING ${debian})
  endif()
endmacro()

# argosy_need_module(<Debian package> <target> <module>…): Argosy::<target> from the first pkg-config module that exists.
function(argosy_need_module debian name)
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
  list(APPEND ARGOSY_MISSING ${debian})
  set(ARGOSY_MISSING ${ARGOSY_MISSING} PARENT_SCOPE)
endfunction()

argosy_need_module(libmpich-dev mpi mpich) # by name: `mpi` may be another vendor's
argosy_need_module(libhdf5-dev hdf5 hdf5-serial hdf5)
argosy_need_module(libsentencepiece-dev sentencepiece sentencepiece)
argosy_need_module(libicu-dev icu icu-i18n) # which brings icu-uc
argosy_need_module(libxxhash-dev xxhash libxxhash)
argosy_need_module(zlib1g-dev zlib zlib)
argosy_need_module(libzstd-dev zstd libzstd)
argosy_need(libfmt-dev fmt 9)
argosy_need(libspdlog-dev spdlog 1.10)
argosy_need(libcli11-dev CLI11 2.1)
argosy_need(libssl-dev OpenSSL 3)
argosy_need(libboost-json1.81-dev Boost 1.81 COMPONENTS json)
if(Boost_FOUND AND NOT TARGET Argosy::boost_json)
  add_library(Argosy::boost_json INTERFACE IMPORTED GLOBAL)
  target_link_libraries(Argosy::boost_json INTERFACE Boost::headers Boost::json)
endif()

find_path(ARGOSY_RANDOM123_INCLUDE Random123/philox.h)
if(NOT ARGOSY_RANDOM123_INCLUDE)
  list(APPEND ARGOSY_MISSING librandom123-dev)
elseif(NOT TARGET Argosy::random123)
  add_library(Argosy::random123 INTERFACE IMPORTED GLOBAL)
  target_include_directories(Argosy::random123 SYSTEM INTERFACE ${ARGOSY_RANDOM123_INCLUDE})
endif()
if(ARGOSY_TESTS)
  argosy_need(libgmock-dev GTest)
  argosy_need(libbenchmark-dev benchmark)
endif()

if(DEFINED ARGOSY_MISSING_FILE)
  list(JOIN ARGOSY_MISSING "\n" lines)
  file(WRITE ${ARGOSY_MISSING_FILE} "${lines}\n")
elseif(ARGOSY_MISSING)
  list(JOIN ARGOSY_MISSING " " names)
  message(FATAL_ERROR "Argosy needs libraries that are not found (Debian's names): ${names}. Run scripts/setup, load the modules of "
                      "the site, or name their folders in CMAKE_PREFIX_PATH and PKG_CONFIG_PATH")
endif()
if(ARGOSY_TORCH)
  find_package(LibTorch 2.11.0 REQUIRED)
endif()
