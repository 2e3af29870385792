#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "soup_app.hpp"

/// Averages checkpoints without LibTorch. Only --validate needs it: the process then becomes soup_validated beside it,
/// before MPI starts, so that all other soups start at once and in little memory.
namespace {

constexpr std::string_view validate_option = "--validate";

bool validates(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == validate_option || word.starts_with(std::string(validate_option) + "=")) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace argosy;
  if (validates(argc, argv)) {
    std::error_code none;
    const Path self = std::filesystem::read_symlink("/proc/self/exe", none);
    execv((self.parent_path() / "soup_validated").c_str(), argv);  // returns only when it fails
  }
  return app::run_soup(argc, argv, [](comm::Context&, const config::Options&, const std::string&) -> soup::Evaluator {
    throw Error{Fault::usage,
                {.wanted = "the program soup_validated beside soup, for --validate",
                 .got = "none that runs",
                 .remedy = "build Argosy with LibTorch, or leave --validate out"}};
  });
}
