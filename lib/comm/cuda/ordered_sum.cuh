#pragma once

#include "comm/nccl_table.hpp"

/// Sums of contributions in a given order on a device, with the bits of comm/ordered_sum.hpp. Results are CUDA's.
namespace argosy::comm {

int launch_ordered_sum(DeviceTerms terms, float* out, std::int64_t elements, bool continues, DeviceStream stream);
/// To nearest even; NaN stays NaN.
int launch_round_to_bf16(const float* from, std::uint16_t* to, std::int64_t elements, DeviceStream stream);

}  // namespace argosy::comm
