#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/error.hpp"

/// What launchers' environment variables say about the number of ranks. Pure functions: the variables are passed in.
namespace argosy::comm {

/// Value of an environment variable, if it is set and not empty.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// Throws Error{usage} if `world_size` is not ARGOSY_EXPECT_RANKS, or if it is 1 and a launcher that our MPI does not
/// know (another MPI's mpirun, srun --mpi=none) started several copies. Throws Error{device} if srun started the world
/// on fewer nodes than ARGOSY_EXPECT_NODES.
void check_world_size(int world_size, const Variables& variables);

/// Whether such a launcher started this copy and it is not the first. Only the first copy logs the error.
[[nodiscard]] bool is_later_copy(int world_size, const Variables& variables);

/// Seconds in a variable, if it is set. Throws Error{usage} if it is not a number of at least `least_s`.
[[nodiscard]] std::optional<double> seconds_in(const Variables& variables, const char* name, double least_s = 0);

/// The variables of this process.
[[nodiscard]] std::optional<std::string> environment_variable(const std::string& name);

}  // namespace argosy::comm
