#include "core/version.hpp"

#include "argosy_revision.hpp"

namespace argosy {

std::string_view version() noexcept { return ARGOSY_VERSION; }

std::string_view revision() noexcept { return ARGOSY_REVISION; }

std::span<const Component> built_with() noexcept {
  static constexpr Component components[] = {{"MPI", "MPICH " ARGOSY_MPI_VERSION},
                                             {"HDF5", ARGOSY_HDF5_VERSION},
                                             {"LibTorch", ARGOSY_LIBTORCH_VERSION},
                                             {"NCCL", ARGOSY_NCCL_VERSION},
                                             {"CUDA", ARGOSY_CUDA_VERSION}};
  return components;
}

}  // namespace argosy
