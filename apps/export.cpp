#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "export_app.hpp"

/// Converts models without LibTorch, so that it starts fast and in little memory. To run a model needs LibTorch: such a
/// command line runs export_verified in this process, before MPI starts.
namespace {

using namespace argosy;

/// A wrong command line is reported by run_export.
bool runs_the_model(int argc, char** argv) {
  app::ExportCommand command;
  try {
    command.cli.parse(argc, argv);
  } catch (const CLI::Error&) {
    return false;
  }
  return command.runs_the_model();
}

}  // namespace

int main(int argc, char** argv) {
  Path verifying;
  std::string why_not;
  if (runs_the_model(argc, argv)) {
    std::error_code none;
    verifying = std::filesystem::read_symlink("/proc/self/exe", none).replace_filename("export_verified");
    execv(verifying.c_str(), argv);  // returns only when it fails
    why_not = std::strerror(errno);
  }
  return app::run_export(argc, argv, [&]() -> model::Forward {
    throw_claim(Fault::usage,
                fmt::format("{}, which runs the model, cannot be started: {}", verifying.string(), why_not),
                verifying.string(), "the program export_verified", why_not,
                "build Argosy with LibTorch, or omit --verify, --vocab-trim and --vocab-extend");
  });
}
