#include <cuda_runtime.h>

#include <cstdio>

#include "kernels/cuda/entries.hpp"

namespace {

constexpr int count = 257;  // two blocks, the second with one element

__global__ void write_squares(int* values) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = i * i;
}

cudaError_t run_squares(int device, bool& right) {
  int host[count] = {};
  int* values = nullptr;
  cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) status = cudaMalloc(&values, sizeof host);
  if (status == cudaSuccess) {
    write_squares<<<2, 256>>>(values);
    status = cudaGetLastError();
  }
  if (status == cudaSuccess) status = cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(values);
  right = true;
  for (int i = 0; i < count; ++i) right = right && host[i] == i * i;
  return status;
}

}  // namespace

extern "C" int argosy_cuda_traits(int device, argosy::kernels::GpuTraits* traits) {
  cudaError_t status = cudaDeviceGetAttribute(&traits->multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&traits->generation, cudaDevAttrComputeCapabilityMajor, device);
  return static_cast<int>(status);
}

/// See entries.hpp. A toolkit newer than the driver, or a device without our architecture, shows here and not in
/// step 1.
extern "C" int argosy_cuda_start(int device, char* problem, std::size_t capacity) {
  bool right = false;
  const cudaError_t status = run_squares(device, right);
  if (status == cudaSuccess && right) return 0;
  cudaGetLastError();  // so that a later call does not find it
  std::snprintf(problem, capacity, "%s",
                status == cudaSuccess ? "a kernel computed wrong values" : cudaGetErrorString(status));
  return 1;
}
