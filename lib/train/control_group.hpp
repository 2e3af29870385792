#pragma once

#include <cstdint>
#include <optional>

#include "core/file.hpp"

/// Limits of this process's Linux control group: the smallest one of the group and of the groups that contain it. Both
/// versions of control groups are read. nullopt: no limit, or none that can be read.
namespace argosy::train {

/// The number of processors that the group may keep busy (v2 cpu.max, v1 cpu.cfs_quota_us).
[[nodiscard]] std::optional<double> cpu_quota(const Files& files, const Path& self = "/proc/self/cgroup",
                                              const Path& mount = "/sys/fs/cgroup");

/// The bytes that the group may hold (v2 memory.max, v1 memory.limit_in_bytes).
[[nodiscard]] std::optional<double> memory_limit(const Files& files, const Path& self = "/proc/self/cgroup",
                                                 const Path& mount = "/sys/fs/cgroup");

}  // namespace argosy::train
