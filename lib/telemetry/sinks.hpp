#pragma once

#include "telemetry/sink.hpp"

/// The sinks that sink_kinds() lists.
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

/// A TensorBoard event file (FORMAT.md): protobuf `Event` messages, each framed as a TFRecord with masked CRC-32C.
/// Scalars, and the samples of validations as text.
class EventFile final : public Sink {
 public:
  /// Creates a new file in the folder `setup.path`. In a resumed run (`resumed_step` > 0) its second record tells
  /// TensorBoard to drop later steps of older files. Throws Error{io}.
  explicit EventFile(const SinkSetup& setup);

  void step(const StepRecord& record) override;
  void validation(const ValidationRecord& record) override;
  void append(std::int64_t step, std::span<const Figure> scalars);

 private:
  void append_record(std::string_view event);

  const Clock* clock_;
  File file_;
};

/// A folder that `wandb sync` uploads to Weights & Biases (FORMAT.md). A run has one, over all of its starts: a start
/// continues the file after the last record that is complete, of a step up to `resumed_step`, and before its end.
class WandbFolder final : public Sink {
 public:
  /// Throws Error{io}.
  explicit WandbFolder(const SinkSetup& setup);
  /// Ends the run's file, unless an error does: then it has no end, which shows as a crash.
  ~WandbFolder() override;

  void step(const StepRecord& record) override;
  void validation(const ValidationRecord& record) override;

 private:
  /// A record is a message with one field.
  void append(unsigned field, std::string_view content);
  void add_history(std::int64_t step, boost::json::object figures);
  /// Since the run's first start. Grows even if the clock is set back.
  [[nodiscard]] double runtime_s() const;

  const Clock* clock_;
  const Log* log_;
  File file_;
  std::uint64_t size_ = 0;              // of the file
  std::int64_t number_ = 0;             // of the last record
  double before_s_ = 0, opened_s_ = 0;  // the runtime when it was opened, and the monotonic clock
  int exceptions_ = 0;                  // in flight when it was opened
};

/// CRC-32C (Castagnoli) of `bytes`, as iSCSI and TFRecord use it.
[[nodiscard]] std::uint32_t crc32c(Bytes bytes) noexcept;

}  // namespace argosy::telemetry
