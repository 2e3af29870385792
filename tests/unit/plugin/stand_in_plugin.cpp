// What lib/kernels/plugin.cpp asks of libargosy_cuda.so, without a GPU; also an empty libtorch_cuda.so.
#include <cstddef>

extern "C" int argosy_cuda_start(int /*device*/, char* /*problem*/, std::size_t /*capacity*/) { return 0; }
