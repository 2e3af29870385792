# `cmake --install build --prefix P` makes a tree that runs wherever it is moved:
#   apps/ jobs/ configs/ scripts/ lib/ include/argosy/ lib/cmake/argosy/
# LibTorch's libraries go along under lib/libtorch in the wheel's layout, which their own rpaths expect (0.5 GB). With
# -DARGOSY_INSTALL_TORCH=OFF the tools keep the absolute path of the LibTorch they were built with.
include(CMakePackageConfigHelpers)
option(ARGOSY_INSTALL_TORCH "Install LibTorch's libraries with the tools, so that the tree can be moved" ON)
set(package_dir lib/cmake/argosy)

get_property(apps GLOBAL PROPERTY ARGOSY_APPS)
if(apps)
  install(TARGETS ${apps} RUNTIME DESTINATION apps)
endif()
install(DIRECTORY jobs DESTINATION . USE_SOURCE_PERMISSIONS)
if(EXISTS ${PROJECT_SOURCE_DIR}/configs)
  install(DIRECTORY configs DESTINATION .)
endif()
install(
  DIRECTORY scripts
  DESTINATION .
  USE_SOURCE_PERMISSIONS
  REGEX "scripts/(cmake|lint|format|test)" EXCLUDE
  PATTERN "__pycache__" EXCLUDE)
install(FILES LICENSE README.md DESTINATION . OPTIONAL)

get_property(modules GLOBAL PROPERTY ARGOSY_MODULES)
list(TRANSFORM modules PREPEND argosy_)
install(
  TARGETS ${modules}
  EXPORT argosyTargets
  ARCHIVE DESTINATION lib
  FILE_SET HEADERS DESTINATION include/argosy)
install(EXPORT argosyTargets NAMESPACE argosy:: DESTINATION ${package_dir})
configure_package_config_file(scripts/cmake/argosyConfig.cmake.in ${PROJECT_BINARY_DIR}/argosyConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/argosyConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/argosyConfig.cmake ${PROJECT_BINARY_DIR}/argosyConfigVersion.cmake
        scripts/cmake/ArgosyDependencies.cmake scripts/cmake/FindLibTorch.cmake
  DESTINATION ${package_dir})

if(ARGOSY_TORCH AND ARGOSY_INSTALL_TORCH)
  set_target_properties(${apps} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib:$ORIGIN/../lib/libtorch/torch/lib")
  file(GLOB torch_libraries ${LibTorch_LIBRARY_DIR}/libtorch_c*.so ${LibTorch_LIBRARY_DIR}/libc10*.so
       ${LibTorch_LIBRARY_DIR}/libcaffe2_nvrtc.so ${LibTorch_LIBRARY_DIR}/libtorch_nvshmem.so
       ${LibTorch_LIBRARY_DIR}/libgomp*.so*)
  install(PROGRAMS ${torch_libraries} DESTINATION lib/libtorch/torch/lib)
  if(LibTorch_NVIDIA_DIR)
    install(
      DIRECTORY ${LibTorch_NVIDIA_DIR}
      DESTINATION lib/libtorch
      FILES_MATCHING
      PATTERN "*.so*"
      PATTERN "include" EXCLUDE)
  endif()
elseif(apps)
  set_target_properties(${apps} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" INSTALL_RPATH_USE_LINK_PATH ON)
endif()

# The build tree serves as well: `sbatch jobs/…` and configs/… are found from its root.
if(NOT PROJECT_BINARY_DIR STREQUAL PROJECT_SOURCE_DIR)
  foreach(folder jobs configs)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/${folder} SYMBOLIC)
  endforeach()
endif()
