#include "kernels/cpu/table.hpp"

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace argosy::kernels::cpu {

namespace baseline {
extern const Table loop_table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Table loop_table;
}
namespace avx512 {
extern const Table loop_table;
}
namespace avx512_bf16 {
extern const Table loop_table;
}
namespace avx512_amx {
extern const Table loop_table;
}

namespace {

/// The system gives a process the registers of AMX only when asked.
bool has_amx() {
#if defined(__linux__)
  static const bool granted = [] {
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    constexpr unsigned needed = 1U << 22 | 1U << 24;             // AMX-BF16, AMX-TILE
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & needed) == needed &&
           syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return granted;
#else
  return false;
#endif
}

/// Intel's processors multiply bf16 no faster than fp32 but by AMX, and many at half its rate.
bool multiplies_bf16_slowly() { return __builtin_cpu_is("intel") && !has_amx(); }

}  // namespace
#else
namespace {
bool multiplies_bf16_slowly() { return false; }
}  // namespace
#endif

const Table* table_named(const char* name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512cd");
  const bool multiplies_bf16 = v4 && __builtin_cpu_supports("avx512bf16");
  if (std::strcmp(name, "avx512_amx") == 0) return multiplies_bf16 && has_amx() ? &avx512_amx::loop_table : nullptr;
  if (std::strcmp(name, "avx512_bf16") == 0) return multiplies_bf16 ? &avx512_bf16::loop_table : nullptr;
  if (std::strcmp(name, "avx512") == 0) return v4 ? &avx512::loop_table : nullptr;
  if (std::strcmp(name, "avx2") == 0) return v3 ? &avx2::loop_table : nullptr;
#endif
  return std::strcmp(name, "baseline") == 0 ? &baseline::loop_table : nullptr;
}

const Table& table() {
  static const Table* const chosen = [] {
    const char* const wanted = std::getenv("ARGOSY_CPU_KERNELS");
    for (const char* name : {wanted != nullptr ? wanted : "avx512_amx", "avx512_bf16", "avx512", "avx2"}) {
      const bool is_slow = wanted == nullptr && std::strcmp(name, "avx512_bf16") == 0 && multiplies_bf16_slowly();
      if (const Table* found = is_slow ? nullptr : table_named(name)) return found;
    }
    return table_named("baseline");
  }();
  return *chosen;
}

}  // namespace argosy::kernels::cpu
