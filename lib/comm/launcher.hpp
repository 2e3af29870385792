#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/error.hpp"

/// What the variables of launchers say about the world this process should be in. Pure: the environment is passed in.
namespace argosy::comm {

/// Value of an environment variable, if it is set and not empty.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// Throws Error{usage} when `world_size` is not ARGOSY_EXPECT_RANKS, or is 1 although a launcher MPI does not know
/// (another MPI's mpirun, srun --mpi=none) started several copies.
void check_world_size(int world_size, const Variables& variables);

/// Whether this is a copy, other than the first, that such a launcher started: it leaves speaking to the first.
[[nodiscard]] bool is_later_copy(int world_size, const Variables& variables);

/// Seconds in a variable, if it is set. Throws Error{usage} when it is no number, or one below `least_s`.
[[nodiscard]] std::optional<double> seconds_in(const Variables& variables, const char* name, double least_s = 0);

/// The variables of this process.
[[nodiscard]] std::optional<std::string> environment_variable(const std::string& name);

}  // namespace argosy::comm
