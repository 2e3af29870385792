#pragma once

#include <ATen/core/Tensor.h>

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "kernels/profile.hpp"

/// Where the time of a step goes: what `train --profile` prints.
namespace argosy::train {

/// What this process reaches alone, measured now: the bounds that operations are compared with.
struct DeviceRates {
  double flops_per_s = 0;  // of a matrix product, which fits the cache of a CPU
  double bytes_per_s = 0;  // of a copy that does not: bytes read and written
};
/// Multiplications and additions per second in the fastest of some large matrix products. type: fp32 or bf16.
[[nodiscard]] double measure_product(at::ScalarType type, c10::Device device, int times);
/// type: fp32 or bf16. Takes about a tenth of a second.
[[nodiscard]] DeviceRates measure_rates(at::ScalarType type, c10::Device device);

/// steps: how many were recorded; seconds: how long they took, all operations included.
struct ProfiledSteps {
  kernels::Profile profile;
  std::int64_t steps = 0;
  double seconds = 0;
};
/// One line an operation, the longest first, for people.
[[nodiscard]] std::vector<std::string> lines_of(const ProfiledSteps& recorded, const DeviceRates& rates);
/// The same figures for programs.
[[nodiscard]] boost::json::object json_of(const ProfiledSteps& recorded, const DeviceRates& rates);

}  // namespace argosy::train
