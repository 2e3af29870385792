#include "config/config.hpp"
#include "config/describe.hpp"
#include "fuzz/fuzz.hpp"
#include "plan/run_config.hpp"

/// A configuration file, with comments and trailing commas, and what the tools make of it; then lines of --set. What is
/// taken is printed as a configuration that is taken.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  std::string_view text = test::text_of(data, size), assignments;
  if (const std::size_t cut = text.find('\0'); cut != std::string_view::npos) {
    assignments = text.substr(cut + 1);
    text = text.substr(0, cut);
  }
  test::refuses_or_takes([&] {
    config::Document document = config::Document::parse(text, "input");
    while (!assignments.empty()) {
      const std::size_t end = std::min(assignments.find('\n'), assignments.size());
      document.set(assignments.substr(0, end));
      assignments.remove_prefix(std::min(end + 1, assignments.size()));
    }
    const auto run = config::from_document<plan::RunConfig>(document);
    const std::string printed = config::text_of(config::to_json(run));
    try {
      static_cast<void>(config::from_document<plan::RunConfig>(config::Document::parse(printed, "output")));
    } catch (const Error& error) {
      throw std::runtime_error(printed + "\nis refused: " + error.what());
    }
  });
  return 0;
}
