#include "train/begin.hpp"

#include <algorithm>
#include <boost/json/object.hpp>

#include "checkpoint/checkpoint.hpp"
#include "core/digits.hpp"
#include "core/error.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

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

bool names_request(const json::array& history, std::string_view request) {
  return std::any_of(history.begin(), history.end(), [&](const json::value& entry) {
    const json::value* named = entry.is_object() ? entry.get_object().if_contains("request") : nullptr;
    return named != nullptr && named->is_string() && named->get_string() == request;
  });
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

}  // namespace argosy::train
