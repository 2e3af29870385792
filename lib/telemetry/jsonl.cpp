#include "telemetry/jsonl.hpp"

#include <boost/json/parse.hpp>

#include "config/config.hpp"

namespace argosy::telemetry {
namespace {

/// Bytes of the leading whole lines with a step up to `last_step`.
std::size_t kept_bytes(std::string_view text, std::int64_t last_step) {
  std::size_t kept = 0;
  while (kept < text.size()) {
    const std::size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) break;
    boost::json::error_code error;
    const boost::json::value line = boost::json::parse(text.substr(kept, end - kept), error);
    const auto* object = error ? nullptr : line.if_object();
    const auto* step = object != nullptr ? object->if_contains("step") : nullptr;
    if (step == nullptr || !step->is_int64() || step->get_int64() > last_step) break;
    kept = end + 1;
  }
  return kept;
}

}  // namespace

JsonLines::JsonLines(const Files& files, const Path& path, std::int64_t resumed_step) {
  if (const auto before = files.stat(path); before && before->size_bytes > 0) {
    std::size_t kept = 0;
    {
      const Mapping mapping = files.map(path);
      const Bytes bytes = mapping.bytes();
      kept = kept_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, resumed_step);
    }
    if (kept < before->size_bytes) {
      File file = files.update(path);
      file.truncate(kept);
      file.close();
    }
  }
  file_ = files.append(path);
}

void JsonLines::append(const boost::json::object& line) {
  file_.append(as_bytes(std::string_view{config::text_of(line, false) + "\n"}));
}

}  // namespace argosy::telemetry
