#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "core/owner.hpp"
#include "telemetry/sinks.hpp"
#include "telemetry/wire.hpp"

namespace argosy::telemetry {

using namespace wire;

namespace {

/// TFRecord stores checksums rotated and shifted, so that a checksum over data that holds checksums stays strong.
std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(as_bytes(bytes)), 15) + 0xa282ead8U; }

/// Event{wall_time = 1, step = 2} and one member of its oneof `what`.
std::string event(double wall_s, std::int64_t step, unsigned what, std::string_view content) {
  std::string out;
  put_key(out, 1, Kind::fixed64);
  put_raw(out, wall_s);
  if (step != 0) put_number(out, 2, step);
  put_bytes(out, what, content);
  return out;
}

/// Summary.Value{tag = 1, tensor = 8, metadata = 9}: a string tensor of two dimensions, which TensorBoard's text plugin
/// shows as a table whose first row is its heading.
std::string text_table(std::string_view tag, std::span<const Sample> samples) {
  constexpr std::int64_t string_type = 7;
  std::string shape, tensor, plugin, metadata, value;
  for (const std::int64_t size : {std::ssize(samples) + 1, std::ptrdiff_t{3}}) {
    std::string dimension;
    put_number(dimension, 1, size);
    put_bytes(shape, 2, dimension);
  }
  put_number(tensor, 1, string_type);
  put_bytes(tensor, 2, shape);
  for (const char* title : {"source", "reference", "translation"}) put_bytes(tensor, 8, title);
  for (const auto& [source, reference, translation] : samples)
    for (const std::string& cell : {source, reference, translation}) put_bytes(tensor, 8, cell);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(value, 1, tag);
  put_bytes(value, 8, tensor);
  put_bytes(value, 9, metadata);
  return value;
}

constexpr unsigned file_version = 3, summary = 5, session_log = 7;

constexpr std::string_view event_prefix = "events.out.tfevents.";

/// For the name of the next file. TensorBoard reads files in the order of their names, so that a clock that was set
/// back must not put it before those of earlier starts.
double name_s(const SinkSetup& setup) {
  constexpr double least = 1e-6;
  double next_s = setup.clock.wall_s();
  for (const std::string& name : setup.files.list(setup.path))
    if (name.starts_with(event_prefix))
      next_s = std::max(next_s, std::strtod(name.c_str() + event_prefix.size(), nullptr) + least);
  return next_s;
}

}  // namespace

std::uint32_t crc32c(Bytes bytes) noexcept { return wire::crc<0x82f63b78>(bytes); }

EventFile::EventFile(const SinkSetup& setup) : clock_(&setup.clock) {
  setup.files.make_folders(setup.path);
  const double wall_s = clock_->wall_s();
  const Path path = setup.path / fmt::format("{}{:.6f}.{}.{}", event_prefix, name_s(setup), host_name(), getpid());
  file_ = setup.files.own().append(path);
  try {
    append_record(event(wall_s, 0, file_version, "brain.Event:2"));
    if (setup.resumed_step > 0)
      append_record(event(wall_s, setup.resumed_step + 1, session_log, "\x08\x01"));  // status = START
  } catch (const Error&) {  // the next attempt creates another file
    setup.files.os().unlink(path.c_str());
    throw;
  }
}

void EventFile::step(const StepRecord& record) {
  std::vector<Figure> scalars;
  for (const auto& figure : figures_of(record)) {
    if (figure.value().is_number() && figure.key() != "step")
      scalars.push_back({.name = figure.key(), .value = figure.value().to_number<double>()});
  }
  append(record.last.step, scalars);
}

void EventFile::validation(const ValidationRecord& record) {
  std::vector<Figure> scalars = figures_of(record);
  for (Figure& figure : scalars) figure.name = fmt::format("validation/{}/{}", record.set, figure.name);
  append(record.step, scalars);
  if (record.samples.empty()) return;
  std::string values;
  put_bytes(values, 1, text_table(fmt::format("validation/{}/samples", record.set), record.samples));
  append_record(event(clock_->wall_s(), record.step, summary, values));
}

void EventFile::append(std::int64_t step, std::span<const Figure> scalars) {
  std::string values;
  for (const Figure& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.name);
    put_key(value, 2, Kind::fixed32);
    put_raw(value, static_cast<float>(scalar.value));
    put_bytes(values, 1, value);
  }
  append_record(event(clock_->wall_s(), step, summary, values));
}

void EventFile::append_record(std::string_view event) {
  std::string record;
  put_raw(record, static_cast<std::uint64_t>(event.size()));
  put_raw(record, masked_crc32c(record));
  record += event;
  put_raw(record, masked_crc32c(event));
  file_.append(as_bytes(std::string_view{record}));
}

}  // namespace argosy::telemetry
