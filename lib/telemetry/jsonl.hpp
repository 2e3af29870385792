#pragma once

#include "telemetry/sink.hpp"

namespace argosy::telemetry {

/// metrics.jsonl (FORMAT.md): one JSON object a line, in ascending order of `step`. Owned by one process.
class JsonLines final : public Sink {
 public:
  /// Opens the file for appending. Removes lines of steps after `resumed_step` and a last line that was written in
  /// part, so that a resumed run leaves the lines of an uninterrupted one. A line without a step stays where it is; the
  /// log warns of it. Throws Error{io}, also where the path is a symbolic link.
  explicit JsonLines(const SinkSetup& setup);

  void step(const StepRecord& record) override { append(figures_of(record)); }
  void validation(const ValidationRecord& record) override;
  void append(const boost::json::object& line);

 private:
  File file_;
};

}  // namespace argosy::telemetry
