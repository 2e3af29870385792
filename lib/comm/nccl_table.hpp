#pragma once

#include <cstddef>
#include <cstdint>

/// What the NCCL backend needs from a device, as a table of functions: NCCL's functions, CUDA's streams and events, and
/// two kernels. With the table the backend includes no header of NCCL or CUDA, and a test can replace the GPU.
/// libargosy_cuda.so fills it (comm/cuda/nccl_table.cu). Results and handles are NCCL's and CUDA's; 0 is success.
/// Compiles as C++17, for nvcc.
namespace argosy::comm {

using NcclComm = void*;
using DeviceStream = void*;
using DeviceMark = void*;  // a CUDA event

struct NcclId {
  char bytes[128] = {};
};

// ncclDataType_t, ncclRedOp_t, the color of a rank outside of all splits, and cudaErrorNotReady.
inline constexpr int nccl_u8 = 1, nccl_f32 = 7, nccl_bf16 = 9;
inline constexpr int nccl_sum = 0;
inline constexpr int nccl_no_color = -1;
inline constexpr int cuda_not_ready = 600;

/// `count` contributions of equal length, in the order in which they are added. The rank's own is at `own_index` of
/// that order; the others lie `stride` elements apart.
struct DeviceTerms {
  const void* own = nullptr;
  const void* others = nullptr;
  std::int64_t stride = 0;
  int own_index = 0, count = 1;
  bool bf16 = false;  // else fp32
};

struct NcclTable {
  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(NcclId* id) = nullptr;
  int (*comm_init_rank)(NcclComm* made, int ranks, NcclId id, int rank) = nullptr;
  int (*comm_split)(NcclComm comm, int color, int key, NcclComm* made, void* config) = nullptr;
  int (*comm_destroy)(NcclComm comm) = nullptr;
  int (*comm_abort)(NcclComm comm) = nullptr;
  int (*comm_get_async_error)(NcclComm comm, int* error) = nullptr;
  const char* (*nccl_error_text)(int result) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  // Counts are elements.
  int (*send)(const void* from, std::size_t count, int type, int peer, NcclComm comm, DeviceStream stream) = nullptr;
  int (*recv)(void* to, std::size_t count, int type, int peer, NcclComm comm, DeviceStream stream) = nullptr;
  int (*reduce)(const void* from, void* to, std::size_t count, int type, int op, int root, NcclComm comm,
                DeviceStream stream) = nullptr;
  int (*reduce_scatter)(const void* from, void* to, std::size_t count_of_rank, int type, int op, NcclComm comm,
                        DeviceStream stream) = nullptr;
  int (*all_gather)(const void* from, void* to, std::size_t count_of_rank, int type, NcclComm comm,
                    DeviceStream stream) = nullptr;

  const char* (*cuda_error_text)(int result) = nullptr;
  // Of the calling thread. A thread that has none set would open a context on GPU 0.
  int (*get_device)(int* device) = nullptr;
  int (*set_device)(int device) = nullptr;
  int (*allocate)(void** made, std::size_t size_bytes) = nullptr;
  int (*free)(void* memory) = nullptr;
  int (*stream_create)(DeviceStream* made) = nullptr;
  int (*stream_destroy)(DeviceStream stream) = nullptr;
  int (*stream_wait)(DeviceStream stream, DeviceMark mark) = nullptr;
  int (*mark_create)(DeviceMark* made) = nullptr;
  int (*mark_destroy)(DeviceMark mark) = nullptr;
  int (*mark_record)(DeviceMark mark, DeviceStream stream) = nullptr;
  int (*mark_query)(DeviceMark mark) = nullptr;

  /// Sums the terms in fp32, one after the other, into `out`, or adds the sum to `out` if `continues`. `out` may be a
  /// term.
  int (*ordered_sum)(DeviceTerms terms, float* out, std::int64_t elements, bool continues,
                     DeviceStream stream) = nullptr;
  int (*round_to_bf16)(const float* from, std::uint16_t* to, std::int64_t elements, DeviceStream stream) = nullptr;
};

/// The entry into libargosy_cuda.so: fills the table, or leaves one line in `problem` [capacity] and returns 1.
inline constexpr const char* nccl_table_name = "argosy_nccl_table";
using FillNcclTable = int (*)(NcclTable* table, char* problem, std::size_t capacity);

}  // namespace argosy::comm
