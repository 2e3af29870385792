#pragma once

#include <boost/json/object.hpp>
#include <cstdint>

#include "core/file.hpp"

/// A file with one JSON object a line, each with a `step`, in ascending order. Owned by one process.
namespace argosy::telemetry {

class JsonLines {
 public:
  /// Opens `path` for appending. What an earlier run wrote behind `resumed_step`, or only in part, is cut off first, so
  /// that a resumed run leaves the lines of an uninterrupted one.
  JsonLines(const Files& files, const Path& path, std::int64_t resumed_step);

  void append(const boost::json::object& line);

 private:
  File file_;
};

}  // namespace argosy::telemetry
