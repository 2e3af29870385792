// A library with the functions and the name of libargosy_cuda.so, which runs the same kernels on the host.
#include <cstdio>

#include "kernels/cuda/activation.ipp"
#include "kernels/cuda/cross_entropy.ipp"
#include "kernels/cuda/elementwise.ipp"
#include "kernels/cuda/embedding.ipp"
#include "kernels/cuda/norm.ipp"
#include "kernels/cuda/optimizer.ipp"
#include "kernels/cuda/rope.ipp"
#include "unit/kernels/emulated_block.hpp"

namespace argosy::kernels {
namespace {

/// Blocks below are left out: tests of addresses beyond 2^31 run the last ones.
std::int64_t first_block = 0;

struct EmulatedLaunch {
  bool good = true;
  template <class Kernel>
  void operator()(std::int64_t blocks, int threads, std::int64_t shared_bytes, const Kernel& kernel) {
    static test::EmulatedGrid grid;
    if (!good || grid.run(kernel, first_block, blocks, threads, shared_bytes)) return;
    std::fprintf(stderr, "%s: %s\n", __PRETTY_FUNCTION__, grid.problem());
    good = false;
  }
};

template <class Call>
int started(const Call& call, void* stream) {
  EmulatedLaunch launch{stream == nullptr};
  cuda::start(call, launch);
  return launch.good ? 0 : 1;
}

}  // namespace

extern "C" int argosy_cuda_traits(int /*device*/, GpuTraits* traits) {
  *traits = {.multiprocessors = 132, .generation = 9};
  return 0;
}
extern "C" void argosy_emulate_from(std::int64_t block) { first_block = block; }
#include "kernels/cuda/entries.ipp"

}  // namespace argosy::kernels
