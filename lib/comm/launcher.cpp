#include "comm/launcher.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/file_name.hpp"

namespace argosy::comm {
namespace {

struct Launcher {
  const char* size;  // tasks it started
  const char* rank;
  const char* name;
};
constexpr std::array launchers{
    Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"},
    Launcher{"PMI_SIZE", "PMI_RANK", "a PMI launcher"},
    Launcher{"MPI_LOCALNRANKS", "MPI_LOCALRANKID", "another MPI's mpiexec.hydra"},
    Launcher{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MVAPICH's mpirun"},
    Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"},
};

std::optional<int> number(const std::optional<std::string>& text) {
  int value = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

/// What a variable of a job expects, if it is set. Throws Error{usage} if it is not a number.
std::optional<int> expected(const Variables& variables, const char* name, const char* what) {
  const auto text = variables(name);
  if (text && !number(text))
    throw_error(Fault::usage, fmt::format("environment variable {}", name), what, fmt::format("\"{}\"", *text),
                "fix or unset it");
  return number(text);
}

/// The launcher that started several copies of a world of one.
const Launcher* unknown_launcher(int world_size, const Variables& variables) {
  if (world_size != 1) return nullptr;
  for (const Launcher& launcher : launchers) {
    // Inside a Slurm job, hydra starts its proxies by srun. Slurm's step then counts proxies, and PMI_SIZE is right.
    if (launcher.size == std::string_view{"SLURM_STEP_NUM_TASKS"} && variables("PMI_SIZE")) continue;
    if (number(variables(launcher.size)).value_or(1) > 1) return &launcher;
  }
  return nullptr;
}

/// The nodes that srun ran this world on, if they are fewer than those of the job: after the loss of a node, Slurm can
/// start a job again on all its nodes and still give srun one node less.
std::optional<int> too_few_nodes(int world_size, const Variables& variables) {
  const auto wanted = expected(variables, "ARGOSY_EXPECT_NODES", "a number of nodes");
  if (number(variables("SLURM_STEP_NUM_TASKS")) != world_size) return std::nullopt;  // started by another launcher
  const auto nodes = number(variables("SLURM_STEP_NUM_NODES"));
  return wanted && nodes && *nodes < *wanted ? nodes : std::nullopt;
}

}  // namespace

void check_world_size(int world_size, const Variables& variables) {
  const std::string remedy =
      "start the tool with srun --mpi=pmi2, or with MPICH's mpiexec (mpiexec.mpich if another MPI comes first on PATH)";
  const auto ranks = expected(variables, "ARGOSY_EXPECT_RANKS", "a number of ranks");
  if (ranks && *ranks != world_size)
    throw_claim(Fault::usage,
                fmt::format("ARGOSY_EXPECT_RANKS asks for {} ranks, but MPI started {}", *ranks, world_size), "",
                fmt::format("{} ranks (ARGOSY_EXPECT_RANKS)", *ranks), std::to_string(world_size), remedy);
  if (const auto nodes = too_few_nodes(world_size, variables)) {
    const std::string wanted = variables("ARGOSY_EXPECT_NODES").value_or("");
    throw_claim(
        Fault::device,
        fmt::format("srun started the ranks on {} nodes, but the job has {} (ARGOSY_EXPECT_NODES)", *nodes, wanted), "",
        fmt::format("{} nodes", wanted), std::to_string(*nodes),
        "start the job again: Slurm has lost count of its nodes");
  }
  if (const Launcher* launcher = unknown_launcher(world_size, variables)) {
    const std::string size = variables(launcher->size).value_or("");
    throw_claim(Fault::usage,
                fmt::format("{} started {} copies of the tool ({}), and each copy has only 1 rank", launcher->name,
                            size, launcher->size),
                "", fmt::format("{} ranks in one MPI world ({})", size, launcher->size),
                fmt::format("1 rank in each copy started by {}", launcher->name), remedy);
  }
}

bool is_later_copy(int world_size, const Variables& variables) {
  const Launcher* launcher = unknown_launcher(world_size, variables);
  return launcher != nullptr && number(variables(launcher->rank)).value_or(0) > 0;
}

std::optional<double> seconds_in(const Variables& variables, const char* name, double least_s) {
  const std::optional<std::string> text = variables(name);
  if (!text) return std::nullopt;
  const auto seconds = number_in<double>(*text);
  if (seconds && std::isfinite(*seconds) && *seconds >= least_s) return seconds;
  const std::string wanted = fmt::format("a number of seconds, at least {}", least_s);
  throw_claim(Fault::usage, fmt::format("environment variable {} must be {}, but is \"{}\"", name, wanted, *text),
              fmt::format("environment variable {}", name), wanted, *text, "fix or unset it");
}

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>{value};
}

}  // namespace argosy::comm
