// Starts the kernels of this folder on a GPU.
#include <cuda_runtime.h>

#include <limits>

#include "kernels/cuda/activation.ipp"
#include "kernels/cuda/cross_entropy.ipp"
#include "kernels/cuda/elementwise.ipp"
#include "kernels/cuda/embedding.ipp"
#include "kernels/cuda/norm.ipp"
#include "kernels/cuda/optimizer.ipp"
#include "kernels/cuda/rope.ipp"

namespace argosy::kernels {
namespace {

/// See block.hpp.
struct CudaBlock {
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ std::int64_t index() const { return blockIdx.x; }
  __device__ float* shared() const {
    extern __shared__ float4 memory[];
    return reinterpret_cast<float*>(memory);
  }
  __device__ void wait() const { __syncthreads(); }
  template <class Value>
  __device__ Value shuffled(Value value, int mask) const {
    return __shfl_xor_sync(0xffffffffU, value, mask);
  }
};

/// Blocks of a multiprocessor, for which the compiler leaves room: 80 registers for a thread.
constexpr int least_blocks = 3;

template <class Kernel>
__global__ void __launch_bounds__(32 * cuda::most_warps, least_blocks) run(const Kernel kernel) {
  kernel(CudaBlock{});
}

struct CudaLaunch {
  cudaStream_t stream;
  cudaError_t code = cudaSuccess;
  template <class Kernel>
  void operator()(std::int64_t blocks, int threads, std::int64_t shared_bytes, const Kernel& kernel) {
    if (blocks == 0 || code != cudaSuccess) return;
    if (blocks > std::numeric_limits<int>::max()) {
      code = cudaErrorInvalidConfiguration;
      return;
    }
    run<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes),
          stream>>>(kernel);
    code = cudaGetLastError();
  }
};

template <class Call>
int started(const Call& call, void* stream) {
  CudaLaunch launch{static_cast<cudaStream_t>(stream)};
  cuda::start(call, launch);
  return static_cast<int>(launch.code);
}

}  // namespace

#include "kernels/cuda/entries.ipp"

}  // namespace argosy::kernels
