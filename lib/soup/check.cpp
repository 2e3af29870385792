#include <algorithm>
#include <optional>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/load.hpp"
#include "core/error.hpp"
#include "model/stored_spec.hpp"
#include "soup/inputs.hpp"

namespace argosy::soup {
namespace {

using checkpoint::Reader;

constexpr const char* not_finite = "it contains NaN or Inf";

/// What is wrong, without the remedy and the checkpoint, which the line names.
std::string verdict_of(const Error& error, const std::string& path) {
  std::string text = error.problem();
  const std::size_t at = text.starts_with("rank ") ? text.find(": ") + 2 : 0;
  if (text.substr(at).starts_with(path)) text.erase(0, text.find_first_not_of("/: ", at + path.size()));
  return text;
}

/// Runs `body` on every rank and returns the complaint of the lowest rank that has one, or "". No deadline applies
/// while ranks work. **Collective.**
template <class Body>
std::string complaint(const comm::Context& context, const std::string& path, const Body& body) {
  std::string own;
  comm::agree(context.world, [&] {
    try {
      own = body();
    } catch (const Error& error) {
      if (error.fault() == Fault::comm) throw;
      own = verdict_of(error, path);
    }
  });
  const std::optional<int> first = comm::lowest_rank(context.world, !own.empty());
  return first ? context.world.broadcast(std::move(own), *first) : "";
}

CheckedCheckpoint check_one(const comm::Context& context, const std::string& path) {
  CheckedCheckpoint checked{.path = path};
  std::optional<Reader> reader;
  try {
    reader.emplace(checkpoint::open_on_all(context, path));
  } catch (const Error& error) {  // the same on all ranks
    if (error.fault() == Fault::comm) throw;
    checked.wrong = verdict_of(error, path);
    return checked;
  }
  std::int64_t bytes[] = {0};
  checked.wrong = complaint(context, path, [&]() -> std::string {
    model::require_own_parameters(*reader);
    const Reader::Verified verified = reader->verify(context.world.rank(), context.world.size());
    bytes[0] = static_cast<std::int64_t>(verified.bytes);
    return verified.finite && reader->finite() ? "" : not_finite;
  });
  context.world.all_reduce(bytes);
  checked.bytes = static_cast<std::uint64_t>(bytes[0]);
  checked.step = reader->step();
  const bool temp = reader->manifest().at("kind") == "temp";
  checked.kind = !reader->sections().soup.empty() ? "soup" : temp ? "temp" : "export";
  checked.shards = static_cast<std::size_t>(reader->spaces().front().world());
  return checked;
}

std::string line_of(const CheckedCheckpoint& checked) {
  const bool known = checked.step >= 0;
  return fmt::format("{:>9}  {:<6}  {:>5}  {:>9}  {}  {}", known ? std::to_string(checked.step) : "-",
                     known ? checked.kind : "-", known ? std::to_string(checked.shards) : "-",
                     known ? fmt::format("{:.3f} GB", static_cast<double>(checked.bytes) / 1e9) : "-", checked.path,
                     checked.wrong.empty() ? "whole" : fmt::format("DAMAGED: {}", checked.wrong));
}

}  // namespace

std::vector<CheckedCheckpoint> check_checkpoints(comm::Context& context, const std::vector<std::string>& paths) {
  context.log.plain(fmt::format("{:>9}  {:<6}  {:>5}  {:>9}  checkpoint and verdict", "step", "kind", "ranks", "size"));
  std::vector<CheckedCheckpoint> all;
  for (const std::string& path : checkpoints_among(context, paths)) {
    all.push_back(check_one(context, path));
    context.log.plain(line_of(all.back()));
  }
  return all;
}

boost::json::object figures(const std::vector<CheckedCheckpoint>& checked, double seconds) {
  boost::json::array verdicts;
  std::uint64_t bytes = 0, damaged = 0;
  for (const CheckedCheckpoint& one : checked) {
    bytes += one.bytes;
    damaged += one.wrong.empty() ? 0 : 1;
    verdicts.push_back({{"path", one.path}, {"step", one.step}, {"verdict", one.wrong.empty() ? "whole" : one.wrong}});
  }
  boost::json::object figures{{"checkpoints", checked.size()},
                              {"damaged", damaged},
                              {"bytes", bytes},
                              {"seconds", seconds},
                              {"gb_per_s", static_cast<double>(bytes) / 1e9 / std::max(seconds, 1e-9)},
                              {"verdicts", std::move(verdicts)}};
  if (damaged > 0) figures["status"] = "damaged";
  return figures;
}

}  // namespace argosy::soup
