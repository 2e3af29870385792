#include "train/profile_report.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <chrono>
#include <functional>
#include <limits>

#include "kernels/gemm.hpp"

namespace argosy::train {
namespace {

double least_seconds(int times, const std::function<void()>& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

void wait_for(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

struct Row {
  std::string name;
  kernels::Profile::Operation operation;
};

/// The longest first, then what no operation accounts for.
std::vector<Row> rows_of(const ProfiledSteps& recorded) {
  std::vector<Row> rows;
  double other_s = recorded.seconds;
  for (const auto& [name, operation] : recorded.profile.operations()) {
    rows.push_back({name, operation});
    other_s -= operation.seconds;
  }
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.operation.seconds > b.operation.seconds; });
  rows.push_back({"other", {.seconds = other_s}});
  return rows;
}

double per_second(double amount, const kernels::Profile::Operation& operation) {
  return operation.seconds > 0 ? amount / operation.seconds : 0;
}

}  // namespace

double measure_product(at::ScalarType type, c10::Device device, int times) {
  const std::int64_t n = device.is_cpu() ? 512 : 8192;
  const auto options = at::TensorOptions().device(device);
  const at::Tensor a = at::ones({n, n}, options.dtype(type)), c = at::empty({n, n}, options.dtype(at::kFloat));
  const kernels::PackedMatrix b = kernels::pack_matrix(a);
  wait_for(device);
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / least_seconds(times, [&] { kernels::gemm(a, b, c), wait_for(device); });
}

DeviceRates measure_rates(at::ScalarType type, c10::Device device) {
  const std::int64_t elements = device.is_cpu() ? 16 << 20 : 256 << 20;
  const auto options = at::TensorOptions().device(device);
  const at::Tensor from = at::ones({elements}, options), to = at::ones({elements}, options);
  wait_for(device);
  const double copy_s = least_seconds(5, [&] { to.copy_(from), wait_for(device); });
  return {measure_product(type, device, 30), 2.0 * static_cast<double>(from.nbytes()) / copy_s};
}

std::vector<std::string> lines_of(const ProfiledSteps& recorded, const DeviceRates& rates) {
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, recorded.steps));
  std::vector<std::string> lines{
      fmt::format("profile of rank 0: {} steps of {:.2f} ms; bounds: {:.1f} GFLOP/s (a large product), {:.1f} "
                  "GB/s (a copy in memory)",
                  recorded.steps, 1e3 * recorded.seconds / steps, 1e-9 * rates.flops_per_s, 1e-9 * rates.bytes_per_s),
      fmt::format("  {:<22} {:>10} {:>10} {:>7} {:>9} {:>8} {:>9}", "operation", "calls/step", "ms/step", "share",
                  "GFLOP/s", "GB/s", "of bound")};
  for (const auto& [name, operation] : rows_of(recorded)) {
    std::string line =
        fmt::format("  {:<22} {:>10.1f} {:>10.2f} {:>6.1f}%", name, static_cast<double>(operation.calls) / steps,
                    1e3 * operation.seconds / steps, 100 * operation.seconds / std::max(1e-12, recorded.seconds));
    const double flops = per_second(operation.flops, operation), bytes = per_second(operation.bytes, operation);
    if (flops > 0) line += fmt::format(" {:>9.1f} {:>8} {:>8.0f}%", 1e-9 * flops, "", 100 * flops / rates.flops_per_s);
    if (bytes > 0) line += fmt::format(" {:>9} {:>8.1f} {:>8.0f}%", "", 1e-9 * bytes, 100 * bytes / rates.bytes_per_s);
    lines.push_back(line);
  }
  return lines;
}

boost::json::object json_of(const ProfiledSteps& recorded, const DeviceRates& rates) {
  boost::json::array operations;
  for (const auto& [name, operation] : rows_of(recorded))
    operations.push_back({{"operation", name},
                          {"calls", operation.calls},
                          {"seconds", operation.seconds},
                          {"flops", operation.flops},
                          {"bytes", operation.bytes}});
  return {{"steps", recorded.steps},
          {"seconds", recorded.seconds},
          {"flops_per_s_bound", rates.flops_per_s},
          {"bytes_per_s_bound", rates.bytes_per_s},
          {"operations", std::move(operations)}};
}

}  // namespace argosy::train
