#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/hash.hpp"

/// What scripts/bench/soup compares with: checkpoints of any size out of our own writer, and plain reading.
///   soup make RUN COUNT MEGABYTES    commits COUNT weights-only checkpoints of that size under RUN/export
///   soup read FILE…                  reads the files with pread, each rank its share of each
namespace {

using argosy::comm::Context;

std::uint64_t number_of(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value > 0) return value;
  throw argosy::Error{argosy::Fault::usage, {.wanted = "a number above 0", .got = text, .where = "the command line"}};
}

void make(Context& context, const std::string& run, std::uint64_t count, std::uint64_t megabytes) {
  constexpr std::int64_t width = 1000;
  const auto elements = static_cast<std::int64_t>(megabytes * 1'000'000 / sizeof(float));
  const argosy::partition::Layout layout = context.topology.layout();
  std::vector<argosy::partition::FlatSpace> spaces;
  constexpr std::int64_t units = 10;
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const std::vector<argosy::partition::ParamSpec> params{
        {fmt::format("block.{}/weight", unit), {elements / units / width, width}},
        {fmt::format("block.{}/norm", unit), {width}, false}};
    spaces.emplace_back(params, layout);
  }
  argosy::checkpoint::Store store{context, run, {}};
  for (std::uint64_t step = 1; step <= count; ++step) {
    std::vector<std::vector<float>> weights;
    std::vector<argosy::checkpoint::UnitState> states;
    for (std::size_t unit = 0; unit < spaces.size(); ++unit) {
      auto& values =
          weights.emplace_back(static_cast<std::size_t>(spaces[unit].owned_size(context.topology.canonical_rank())));
      std::uint64_t state = step * 0x9E3779B97F4A7C15U + unit;
      for (float& value : values) {  // in [1, 2): xorshift in the mantissa
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        value = std::bit_cast<float>(0x3F800000U | static_cast<std::uint32_t>(state >> 41));
      }
    }
    for (std::size_t unit = 0; unit < spaces.size(); ++unit)
      states.push_back({fmt::format("block.{}", unit), &spaces[unit], {{"master", weights[unit]}}});
    argosy::checkpoint::Sections sections;
    sections.model = {{"arch", "bench"}};
    const auto report =
        store.save(argosy::checkpoint::Kind::export_, static_cast<std::int64_t>(step), states, sections, {});
    if (!report.committed) throw argosy::Error{argosy::Fault::io, {.wanted = "a checkpoint", .got = report.why_not}};
  }
}

void read(Context& context, const std::vector<std::string>& paths) {
  constexpr std::uint64_t piece_bytes = 1 << 20;
  std::vector<std::byte> buffer(piece_bytes);
  const auto rank = static_cast<std::uint64_t>(context.world.rank());
  const auto ranks = static_cast<std::uint64_t>(context.world.size());
  context.world.barrier("begin");
  const double begin_s = context.clock.monotonic_s();
  std::int64_t bytes[] = {0};
  for (const std::string& path : paths) {
    const argosy::File file = context.files.open(path);
    const std::uint64_t size = file.stat().size_bytes, end = size * (rank + 1) / ranks;
    for (std::uint64_t at = size * rank / ranks; at < end; at += piece_bytes) {
      const auto piece = argosy::MutableBytes{buffer}.first(std::min(piece_bytes, end - at));
      file.read_at(piece, at);
      bytes[0] += static_cast<std::int64_t>(piece.size());
    }
  }
  context.world.all_reduce(bytes);
  const double seconds = context.clock.monotonic_s() - begin_s;
  context.print_result("read", {{"bytes_read", bytes[0]},
                                {"seconds", seconds},
                                {"input_gb_per_s", static_cast<double>(bytes[0]) / 1e9 / seconds}});
}

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](Context& context) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 4 && words[0] == "make") {
      make(context, words[1], number_of(words[2]), number_of(words[3]));
    } else if (words.size() > 1 && words[0] == "read") {
      read(context, {words.begin() + 1, words.end()});
    } else {
      throw argosy::Error{argosy::Fault::usage,
                          {.wanted = "make RUN COUNT MEGABYTES, or read FILE…", .where = "the command line"}};
    }
    return argosy::Exit::ok;
  });
}
