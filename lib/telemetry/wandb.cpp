#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <utility>

#include "config/config.hpp"
#include "core/hash.hpp"
#include "core/owner.hpp"
#include "telemetry/sinks.hpp"
#include "telemetry/wire.hpp"

namespace argosy::telemetry {
namespace {

// Fields of wandb's message Record, and of what it holds.
constexpr unsigned field_number = 1, field_history = 2, field_summary = 3, field_config = 5, field_run = 17,
                   field_exit = 18;
constexpr unsigned item_key = 1, item_json = 16;
constexpr unsigned history_step = 2, run_start_time = 17;

constexpr std::string_view file_header{":W&B\xe1\xbe\0", 7};

// Records are cut into chunks as in LevelDB's log, so that none crosses the border of a block.
constexpr std::uint64_t block_bytes = 32768, chunk_header_bytes = 7;
enum class Chunk : unsigned char { full = 1, first = 2, middle = 3, last = 4 };

std::uint32_t checksum(std::string_view type_and_data) { return wire::crc<0xedb88320>(as_bytes(type_and_data)); }

/// A record as it stands at `offset` of the file.
std::string framed(std::string_view record, std::uint64_t offset) {
  std::string out;
  for (bool begins = true; begins || !record.empty(); begins = false) {
    std::uint64_t room = block_bytes - (offset + out.size()) % block_bytes;
    if (room < chunk_header_bytes) {
      out.append(room, '\0');
      room = block_bytes;
    }
    const std::string_view part = record.substr(0, room - chunk_header_bytes);
    record.remove_prefix(part.size());
    const Chunk kind =
        begins ? (record.empty() ? Chunk::full : Chunk::first) : (record.empty() ? Chunk::last : Chunk::middle);
    const std::string body = static_cast<char>(kind) + std::string(part);
    wire::put_raw(out, checksum(body));
    wire::put_raw(out, static_cast<std::uint16_t>(part.size()));
    out += body;
  }
  return out;
}

/// Reads the records of a file one after the other.
class Records {
 public:
  explicit Records(std::string_view file) : file_(file) {}
  [[nodiscard]] std::uint64_t offset() const { return at_; }  // behind the last one

  /// The next one; nullopt at the end, or where the rest is incomplete or damaged.
  std::optional<std::string> next() {
    std::string record;
    bool begun = false;
    for (std::uint64_t at = at_;;) {
      if (block_bytes - at % block_bytes < chunk_header_bytes) at += block_bytes - at % block_bytes;
      if (at + chunk_header_bytes > file_.size()) return std::nullopt;
      std::uint32_t sum = 0;
      std::uint16_t size = 0;
      std::memcpy(&sum, file_.data() + at, sizeof sum);
      std::memcpy(&size, file_.data() + at + 4, sizeof size);
      if (at + chunk_header_bytes + size > file_.size()) return std::nullopt;
      const std::string_view body = file_.substr(at + 6, 1U + size);
      const auto kind = static_cast<Chunk>(body[0]);
      const bool begins = kind == Chunk::full || kind == Chunk::first;
      if (checksum(body) != sum || begins == std::exchange(begun, true)) return std::nullopt;
      record += body.substr(1);
      at += chunk_header_bytes + size;
      if (kind == Chunk::full || kind == Chunk::last) {
        at_ = at;
        return record;
      }
    }
  }

 private:
  std::string_view file_;
  std::uint64_t at_ = file_header.size();
};

/// What a run may go on after.
struct Whole {
  std::uint64_t size = 0;  // 0: nothing
  std::int64_t records = 0;
  double start_s = 0;
};

Whole whole_of(std::string_view file, std::int64_t last_step) {
  Whole whole;
  if (!file.starts_with(file_header)) return whole;
  Records records(file);
  while (const std::optional<std::string> record = records.next()) {
    if (const auto run = wire::field_of(*record, field_run)) {
      const auto time = wire::field_of(run->bytes, run_start_time);
      const auto seconds = time ? wire::field_of(time->bytes, 1) : std::nullopt;
      whole.start_s = seconds ? static_cast<double>(seconds->number) : 0;
    } else if (whole.size == 0) {
      break;  // the first record makes the run
    }
    if (wire::field_of(*record, field_exit)) break;
    if (const auto history = wire::field_of(*record, field_history)) {
      const auto step = wire::field_of(history->bytes, history_step);
      const auto number = step ? wire::field_of(step->bytes, 1) : std::nullopt;
      if (number && static_cast<std::int64_t>(number->number) > last_step) break;
    }
    whole.size = records.offset();
    ++whole.records;
  }
  return whole;
}

std::string item(std::string_view key, const boost::json::value& value) {
  std::string out;
  wire::put_bytes(out, item_key, key);
  wire::put_bytes(out, item_json, config::text_of(value, false));
  return out;
}

/// Repeated items in field 1: a history, or an update of the configuration or of the summary.
std::string items(const boost::json::object& values) {
  std::string out;
  for (const auto& value : values) wire::put_bytes(out, 1, item(value.key(), value.value()));
  return out;
}

std::string run_record(const SinkSetup& setup, std::string_view id, double start_s) {
  std::string run, time;
  wire::put_bytes(run, 1, id);
  const WandbConfig& config = setup.config.wandb;
  const std::optional<std::string> name = config.name ? config.name : setup.path.parent_path().filename().string();
  const std::pair<unsigned, const std::optional<std::string>&> names[] = {
      {2, config.entity}, {3, config.project}, {6, config.group}, {8, name}};
  for (const auto& [field, text] : names)
    if (text) wire::put_bytes(run, field, *text);
  wire::put_bytes(run, 4, items(setup.configuration));
  wire::put_bytes(run, 13, host_name());
  wire::put_number(time, 1, static_cast<std::int64_t>(start_s));
  wire::put_bytes(run, run_start_time, time);
  return run;
}

/// Letters and digits, as the service likes them.
std::string new_id(double wall_s) {
  constexpr std::string_view digits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::uint64_t number = hash64(fmt::format("{} {} {:.6f}", host_name(), getpid(), wall_s));
  std::string id;
  for (int i = 0; i < 8; ++i, number /= digits.size()) id += digits[number % digits.size()];
  return id;
}

/// The run's folder, which is made at its first start: …/offline-run-20260131_120000-k3x9a0bc.
Path run_folder(const SinkSetup& setup) {
  constexpr std::string_view prefix = "offline-run-";
  setup.files.make_folders(setup.path);
  for (const std::string& name : setup.files.list(setup.path))
    if (name.starts_with(prefix) && name.rfind('-') >= prefix.size()) return setup.path / name;
  std::string time = timestamp_text(setup.clock.wall_s());  // 2026-01-31T12:00:00Z
  std::erase_if(time, [](char c) { return c == '-' || c == ':' || c == 'Z'; });
  std::ranges::replace(time, 'T', '_');
  return setup.path / fmt::format("{}{}-{}", prefix, time, new_id(setup.clock.wall_s()));
}

}  // namespace

WandbFolder::WandbFolder(const SinkSetup& setup)
    : clock_(&setup.clock), log_(&setup.log), exceptions_(std::uncaught_exceptions()) {
  const Path folder = run_folder(setup);
  setup.files.make_folders(folder / "files");
  const std::string name = folder.filename().string(), id = name.substr(name.rfind('-') + 1);
  const Files own = setup.files.own();
  const Path path = folder / fmt::format("run-{}.wandb", id);
  file_ = own.append(path);
  Whole whole;
  if (file_.stat().size_bytes > 0) {
    const Mapping mapping = own.map(path);
    whole =
        whole_of({reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size()}, setup.resumed_step);
  }
  file_.truncate(whole.size);
  size_ = whole.size;
  number_ = whole.records;
  opened_s_ = clock_->monotonic_s();
  if (size_ > 0) {
    before_s_ = std::max(0.0, clock_->wall_s() - whole.start_s);
    append(field_config, items(setup.configuration));  // which may have changed
    return;
  }
  file_.append(as_bytes(file_header));
  size_ = file_header.size();
  append(field_run, run_record(setup, id, std::floor(clock_->wall_s())));
  setup.log.info("Weights & Biases: run {}; upload it with: wandb sync {}", id, folder.string());
}

WandbFolder::~WandbFolder() {
  if (std::uncaught_exceptions() > exceptions_) return;
  try {
    std::string content;
    wire::put_number(content, 2, static_cast<std::int64_t>(runtime_s()));  // code 0 is left out
    append(field_exit, content);
  } catch (const Error& error) {
    log_->warn("{} has no end: {}", file_.path().string(), error.what());
  }
}

double WandbFolder::runtime_s() const { return before_s_ + clock_->monotonic_s() - opened_s_; }

void WandbFolder::append(unsigned field, std::string_view content) {
  std::string record;
  wire::put_number(record, field_number, number_ + 1);
  wire::put_bytes(record, field, content);
  const std::string bytes = framed(record, size_);
  file_.append(as_bytes(bytes));
  size_ += bytes.size();
  ++number_;
}

void WandbFolder::add_history(std::int64_t step, boost::json::object figures) {
  const std::string update = items(figures);
  figures["_step"] = step;
  figures["_timestamp"] = clock_->wall_s();
  figures["_runtime"] = runtime_s();
  std::string history = items(figures), number;
  wire::put_number(number, 1, step);
  wire::put_bytes(history, history_step, number);
  append(field_history, history);
  append(field_summary, update);
}

void WandbFolder::step(const StepRecord& record) {
  boost::json::object figures;
  for (const auto& figure : figures_of(record)) {
    const bool is_known = figure.value().is_number() && std::isfinite(figure.value().to_number<double>());
    if (is_known && figure.key() != "step") figures[figure.key()] = figure.value();
  }
  add_history(record.last.step, std::move(figures));
}

void WandbFolder::validation(const ValidationRecord& record) {
  boost::json::object figures;
  for (const Figure& figure : figures_of(record))
    if (std::isfinite(figure.value)) figures[fmt::format("validation/{}/{}", record.set, figure.name)] = figure.value;
  add_history(record.step, std::move(figures));
}

}  // namespace argosy::telemetry
