#include <cuda_runtime.h>

#include "kernels/cuda/adamw_stochastic.ipp"

namespace {

using argosy::kernels::AdamwStochasticCall;

constexpr unsigned block_threads = 256;

__global__ void update(const AdamwStochasticCall call, std::int64_t blocks) {
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (block < blocks) argosy::kernels::update_block(call, block);
}

}  // namespace

extern "C" int argosy_cuda_adamw_stochastic(const AdamwStochasticCall* call, void* stream) {
  const std::int64_t blocks = (call->n + 127) / 128 * 16;
  if (blocks == 0) return 0;
  const auto grid = static_cast<unsigned>((blocks + block_threads - 1) / block_threads);
  update<<<grid, block_threads, 0, static_cast<cudaStream_t>(stream)>>>(*call, blocks);
  return static_cast<int>(cudaGetLastError());
}
