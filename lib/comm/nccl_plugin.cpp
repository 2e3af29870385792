// The table of libargosy_cuda.so.
#include <dlfcn.h>

#include <string>

#include "comm/nccl_collectives.hpp"
#include "core/error.hpp"

namespace argosy::comm {

const NcclTable& nccl_table() {
  static const NcclTable table = [] {
    NcclTable filled;
    char problem[256] = "the plug-in is not open";
    void* const plugin = dlopen("libargosy_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    auto* const fill = plugin == nullptr ? nullptr : reinterpret_cast<FillNcclTable>(dlsym(plugin, nccl_table_name));
    if (fill == nullptr || fill(&filled, problem, sizeof problem) != 0) {
      throw_claim(Fault::device, fmt::format("NCCL is not available through libargosy_cuda.so: {}", problem), "",
                  "NCCL through libargosy_cuda.so", problem, "set device to cpu to train without a GPU");
    }
    return filled;
  }();
  return table;
}

}  // namespace argosy::comm
