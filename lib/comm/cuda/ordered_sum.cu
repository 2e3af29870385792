// A thread sums its elements term by term, as the loops of the host do: the same bits. Elements go by fours, which
// slices allow: they start at multiples of 256.
#include <cuda_runtime.h>

#include <algorithm>

#include "comm/cuda/ordered_sum.cuh"

namespace argosy::comm {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 132 * 16;  // enough to fill any of today's GPUs; the loop strides over the rest

__device__ float value(const float* from, std::int64_t i) { return from[i]; }
__device__ float value(const std::uint16_t* from, std::int64_t i) {
  return __uint_as_float(static_cast<unsigned>(from[i]) << 16);
}
__device__ float4 values(const float* from, std::int64_t i) { return reinterpret_cast<const float4*>(from)[i]; }
__device__ float4 values(const std::uint16_t* from, std::int64_t i) {
  const ushort4 bits = reinterpret_cast<const ushort4*>(from)[i];
  return {__uint_as_float(static_cast<unsigned>(bits.x) << 16), __uint_as_float(static_cast<unsigned>(bits.y) << 16),
          __uint_as_float(static_cast<unsigned>(bits.z) << 16), __uint_as_float(static_cast<unsigned>(bits.w) << 16)};
}
__device__ float added(float a, float b) { return __fadd_rn(a, b); }
__device__ float4 added(float4 a, float4 b) {
  return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)};
}

/// `out` may be a term: each thread reads its element of all terms before it writes.
template <class T>
__global__ void sum_in_order(const T* own, const T* others, std::int64_t stride, int own_index, int count, float* out,
                             std::int64_t elements, bool continues) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const auto term = [&](int k) { return k == own_index ? own : others + (k < own_index ? k : k - 1) * stride; };
  for (std::int64_t i = first; i < elements / 4; i += step) {
    float4 sum = values(term(0), i);
    for (int k = 1; k < count; ++k) sum = added(sum, values(term(k), i));
    float4* const to = reinterpret_cast<float4*>(out) + i;
    *to = continues ? added(*to, sum) : sum;
  }
  for (std::int64_t i = elements / 4 * 4 + first; i < elements; i += step) {
    float sum = value(term(0), i);
    for (int k = 1; k < count; ++k) sum = added(sum, value(term(k), i));
    out[i] = continues ? added(out[i], sum) : sum;
  }
}

__global__ void round_all(const float* from, std::uint16_t* to, std::int64_t elements) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = first; i < elements; i += step) {
    const unsigned bits = __float_as_uint(from[i]);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    to[i] = static_cast<std::uint16_t>((nan ? bits | 0x400000U : bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
}

unsigned blocks_for(std::int64_t threads_wanted) {
  return static_cast<unsigned>(
      std::min(most_blocks, std::max<std::int64_t>(1, (threads_wanted + threads - 1) / threads)));
}

template <class T>
void launch(const DeviceTerms& terms, float* out, std::int64_t elements, bool continues, cudaStream_t stream) {
  sum_in_order<T><<<blocks_for(elements / 4), threads, 0, stream>>>(
      static_cast<const T*>(terms.own), static_cast<const T*>(terms.others), terms.stride, terms.own_index, terms.count,
      out, elements, continues);
}

}  // namespace

int launch_ordered_sum(DeviceTerms terms, float* out, std::int64_t elements, bool continues, DeviceStream stream) {
  if (elements == 0) return cudaSuccess;
  terms.bf16 ? launch<std::uint16_t>(terms, out, elements, continues, static_cast<cudaStream_t>(stream))
             : launch<float>(terms, out, elements, continues, static_cast<cudaStream_t>(stream));
  return cudaGetLastError();
}

int launch_round_to_bf16(const float* from, std::uint16_t* to, std::int64_t elements, DeviceStream stream) {
  if (elements == 0) return cudaSuccess;
  round_all<<<blocks_for(elements), threads, 0, static_cast<cudaStream_t>(stream)>>>(from, to, elements);
  return cudaGetLastError();
}

}  // namespace argosy::comm
