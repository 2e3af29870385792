// What lib/kernels/plugin.cpp asks of libcuda.so.1, without a GPU.
#include <cstdlib>
#include <cstring>

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) {
  const char* asked = std::getenv("ARGOSY_STAND_IN_GPUS");
  *count = asked == nullptr ? 2 : std::atoi(asked);
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
int cuDeviceGetUuid(char* uuid, int device) {
  std::memset(uuid, device, 16);
  return 0;
}
}
