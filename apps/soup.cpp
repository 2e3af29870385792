#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "soup_app.hpp"

/// Averages checkpoints without LibTorch, so that it starts fast and in little memory. Evaluation needs LibTorch: a
/// command line with --validate runs soup_validated in this process, before MPI starts.
namespace {

using namespace argosy;

/// A wrong command line is reported by run_soup.
bool validates(int argc, char** argv) {
  app::SoupCommand command;
  try {
    command.cli.parse(argc, argv);
  } catch (const CLI::Error&) {
    return false;
  }
  return !command.validation.config.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Path evaluating;
  std::string why_not;
  if (validates(argc, argv)) {
    std::error_code none;
    evaluating = std::filesystem::read_symlink("/proc/self/exe", none).replace_filename("soup_validated");
    execv(evaluating.c_str(), argv);  // returns only when it fails
    why_not = std::strerror(errno);
  }
  return app::run_soup(argc, argv, [&](comm::Context&, const config::Options&, const std::string&) -> soup::Evaluator {
    throw_claim(
        Fault::usage, fmt::format("{}, which --validate runs, cannot be started: {}", evaluating.string(), why_not),
        evaluating.string(), "the program soup_validated", why_not, "build Argosy with LibTorch, or omit --validate");
  });
}
