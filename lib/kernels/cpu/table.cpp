#include "kernels/cpu/table.hpp"

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
#endif

const Table* table_named(const char* name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512cd");
  const bool multiplies_bf16 = v4 && __builtin_cpu_supports("avx512bf16");
  if (std::strcmp(name, "avx512_bf16") == 0) return multiplies_bf16 ? &avx512_bf16::loop_table : nullptr;
  if (std::strcmp(name, "avx512") == 0) return v4 ? &avx512::loop_table : nullptr;
  if (std::strcmp(name, "avx2") == 0) return v3 ? &avx2::loop_table : nullptr;
#endif
  return std::strcmp(name, "baseline") == 0 ? &baseline::loop_table : nullptr;
}

const Table& table() {
  static const Table* const chosen = [] {
    const char* const wanted = std::getenv("ARGOSY_CPU_KERNELS");
    for (const char* name : {wanted != nullptr ? wanted : "avx512_bf16", "avx512", "avx2"}) {
      if (const Table* found = table_named(name)) return found;
    }
    return table_named("baseline");
  }();
  return *chosen;
}

}  // namespace argosy::kernels::cpu
