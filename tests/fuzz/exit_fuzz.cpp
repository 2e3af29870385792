#include <stdexcept>

#include "comm/exit_file.hpp"
#include "fuzz/fuzz.hpp"
#include "telemetry/run_report.hpp"

/// What jobs leave in a run directory for scripts: exit files, starts.<job>, chain.json.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  const std::string_view text = test::text_of(data, size);
  if (const auto record = comm::parse_exit(text)) {
    if (record->code < 0 || record->code > 255 || record->step < 0 ||
        record->why.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string::npos)
      throw std::runtime_error("an exit record that no tool writes");
  }
  test::refuses_or_takes([&] {
    const auto starts = telemetry::parse_starts(text);
    for (const std::int64_t newest : {std::int64_t{0}, starts.empty() ? 0 : starts.back().step}) {
      const std::int64_t fruitless = telemetry::fruitless(starts, newest);
      if (fruitless < 0 || fruitless > static_cast<std::int64_t>(starts.size()))
        throw std::runtime_error("more starts than there are");
    }
  });
  test::refuses_or_takes([&] {
    for (const telemetry::ChainJob& job : telemetry::parse_chain(text)) {
      if (job.job.empty() || job.job.find_first_not_of("0123456789") != std::string::npos)
        throw std::runtime_error("a job without a number");
    }
  });
  return 0;
}
