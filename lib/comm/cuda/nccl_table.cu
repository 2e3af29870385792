// The device's half of the NCCL backend: the functions of comm/nccl_table.hpp. NCCL's are taken from the library that
// LibTorch has loaded, by name: a process must not hold two of them.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>

#include "comm/cuda/ordered_sum.cuh"
#include "comm/nccl_table.hpp"

namespace {

using argosy::comm::DeviceMark;
using argosy::comm::DeviceStream;
using argosy::comm::NcclTable;

cudaStream_t stream_of(DeviceStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(DeviceMark mark) { return static_cast<cudaEvent_t>(mark); }

const char* cuda_error_text(int result) { return cudaGetErrorString(static_cast<cudaError_t>(result)); }
int get_device(int* device) { return cudaGetDevice(device); }
int set_device(int device) { return cudaSetDevice(device); }
int allocate(void** made, std::size_t size_bytes) { return cudaMalloc(made, size_bytes); }
int free_memory(void* memory) { return cudaFree(memory); }

/// Above the stream of computation, which would leave no room for what others wait for.
int stream_create(DeviceStream* made) {
  int lowest = 0, highest = 0;
  if (const cudaError_t result = cudaDeviceGetStreamPriorityRange(&lowest, &highest); result != cudaSuccess)
    return result;
  cudaStream_t stream = nullptr;
  const cudaError_t result = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest);
  *made = stream;
  return result;
}
int stream_destroy(DeviceStream stream) { return cudaStreamDestroy(stream_of(stream)); }
int stream_wait(DeviceStream stream, DeviceMark mark) {
  return cudaStreamWaitEvent(stream_of(stream), event_of(mark), 0);
}
int mark_create(DeviceMark* made) {
  cudaEvent_t event = nullptr;
  const cudaError_t result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  *made = event;
  return result;
}
int mark_destroy(DeviceMark mark) { return cudaEventDestroy(event_of(mark)); }
int mark_record(DeviceMark mark, DeviceStream stream) { return cudaEventRecord(event_of(mark), stream_of(stream)); }
int mark_query(DeviceMark mark) { return cudaEventQuery(event_of(mark)); }

template <class Function>
bool find(void* library, const char* name, Function& function, char* problem, std::size_t capacity) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) std::snprintf(problem, capacity, "%s", dlerror());
  return function != nullptr;
}

}  // namespace

extern "C" int argosy_nccl_table(NcclTable* table, char* problem, std::size_t capacity) {
  void* const nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (nccl == nullptr) {
    std::snprintf(problem, capacity, "LibTorch without libnccl.so.2");
    return 1;
  }
  const auto take = [&](const char* name, auto& function) { return find(nccl, name, function, problem, capacity); };
  const bool complete = take("ncclGetVersion", table->get_version) && take("ncclGetUniqueId", table->get_unique_id) &&
                        take("ncclCommInitRank", table->comm_init_rank) && take("ncclCommSplit", table->comm_split) &&
                        take("ncclCommDestroy", table->comm_destroy) && take("ncclCommAbort", table->comm_abort) &&
                        take("ncclCommGetAsyncError", table->comm_get_async_error) &&
                        take("ncclGetErrorString", table->nccl_error_text) &&
                        take("ncclGroupStart", table->group_start) && take("ncclGroupEnd", table->group_end) &&
                        take("ncclSend", table->send) && take("ncclRecv", table->recv) &&
                        take("ncclReduce", table->reduce) && take("ncclReduceScatter", table->reduce_scatter) &&
                        take("ncclAllGather", table->all_gather);
  table->cuda_error_text = cuda_error_text;
  table->get_device = get_device;
  table->set_device = set_device;
  table->allocate = allocate;
  table->free = free_memory;
  table->stream_create = stream_create;
  table->stream_destroy = stream_destroy;
  table->stream_wait = stream_wait;
  table->mark_create = mark_create;
  table->mark_destroy = mark_destroy;
  table->mark_record = mark_record;
  table->mark_query = mark_query;
  table->ordered_sum = argosy::comm::launch_ordered_sum;
  table->round_to_bf16 = argosy::comm::launch_round_to_bf16;
  return complete ? 0 : 1;
}
