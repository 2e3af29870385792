#pragma once

#include <boost/json/object.hpp>
#include <cstdint>

#include "core/file.hpp"
#include "core/log.hpp"

/// A file with one JSON object a line, each with a `step`, in ascending order. Owned by one process.
namespace argosy::telemetry {

class JsonLines {
 public:
  /// Opens `path` for appending. Lines of steps behind `resumed_step`, and a last one that was written in part, are
  /// removed first, so that a resumed run leaves the lines of an uninterrupted one. Lines that say no step stay where
  /// they are, with a warning. Throws Error{io}, also where `path` is a symbolic link.
  JsonLines(const Files& files, const Path& path, std::int64_t resumed_step, const Log& log);

  void append(const boost::json::object& line);

 private:
  File file_;
};

}  // namespace argosy::telemetry
