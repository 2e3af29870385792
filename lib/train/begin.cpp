#include "train/begin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <utility>

#include "checkpoint/load.hpp"
#include "core/error.hpp"
#include "core/file_name.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

/// Whether the history contains this request.
bool names_request(const json::array& history, const std::string& request) {
  return std::any_of(history.begin(), history.end(), [&](const json::value& entry) {
    const json::value* named = entry.is_object() ? entry.get_object().if_contains("request") : nullptr;
    return named != nullptr && named->is_string() && named->get_string() == request;
  });
}

bool comes_from(const Files& files, const Path& checkpoint, const std::string& request) {
  try {
    return names_request(checkpoint::Reader{files, checkpoint}.sections().history, request);
  } catch (const Error&) {  // loading says what is wrong with it
    return false;
  }
}

}  // namespace

void add_request(json::array& history, std::int64_t step, std::string_view request) {
  history.push_back(json::object{{"step", step}, {"request", request}});
}

bool is_carried_out(const comm::Context& context, const Path& run_dir, const std::string& request) {
  bool found = false;
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    for (const char* folder : {"checkpoints", "export"}) {
      if (!context.files.exists(run_dir / folder)) continue;
      for (const std::string& name : context.files.list(run_dir / folder)) {
        if (!found && count_in(name)) found = comes_from(context.files, run_dir / folder / name, request);
      }
    }
  });
  return comm::any_of(context.world, found);
}

void require_from(const checkpoint::Reader& candidate, const std::string& request) {
  if (names_request(candidate.sections().history, request)) return;
  throw_claim(
      Fault::corrupt,
      fmt::format("{} was saved before this job ({}) began, and the checkpoints that this job has saved are damaged",
                  candidate.directory().string(), request),
      candidate.directory().string(), "a sound checkpoint that this job has saved", "an older one",
      "submit a new job, and give the checkpoint to resume from with --resume");
}

void set_aside(const comm::Context& context, const Path& run_dir) {
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    for (const char* folder : {"checkpoints", "export"}) {
      if (!context.files.exists(run_dir / folder) || context.files.list(run_dir / folder).empty()) continue;
      const Path aside = run_dir / fmt::format("{}.old-{:.0f}", folder, context.clock.wall_s() * 1000);
      context.files.rename(run_dir / folder, aside);
      context.log.warn("starting from scratch: {} is renamed to {}", (run_dir / folder).string(), aside.string());
    }
    context.files.sync_folder(run_dir);
  });
}

Beginning::Beginning(comm::Context& context, checkpoint::Store& store, bool from_scratch, std::string resume,
                     const std::string& request)
    : context_(context), store_(store), from_scratch_(from_scratch), resume_(std::move(resume)) {
  const bool asked = from_scratch_ || resume_ != "auto";
  request_ = context.world.broadcast(asked ? request : std::string{});
  goes_on_ = !request_.empty() && is_carried_out(context, store.run_dir(), request_);
  if (goes_on_)
    context.log.info(
        "an earlier start of this job ({}) has carried out --from-scratch or --resume; this start resumes from the "
        "newest checkpoint",
        request_);
}

std::optional<Path> Beginning::resume_from() const {
  return resume_ != "auto" && !goes_on_ ? std::optional<Path>(resume_) : std::nullopt;
}

std::optional<checkpoint::Reader> Beginning::checkpoint() const {
  if (const auto from = resume_from()) return checkpoint::open_on_all(context_, *from);
  return store_.newest();
}

}  // namespace argosy::train
