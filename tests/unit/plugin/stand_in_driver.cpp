// What lib/kernels/plugin.cpp asks of libcuda.so.1, without a GPU.
#include <cstring>

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = 100 + index;  // a handle is not an index
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  std::strncpy(name, device == 100 ? "NVIDIA H200" : "Abacus 1", static_cast<std::size_t>(size));
  return 0;
}
}
