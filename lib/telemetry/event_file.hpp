#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "core/file.hpp"

/// TensorBoard event files: TFRecord framing with masked CRC-32C around protobuf `Event` messages (FORMAT.md). Scalars
/// only.
namespace argosy::telemetry {

struct Scalar {
  std::string_view tag;
  double value = 0;
};

class EventFile {
 public:
  /// Creates a new file in `folder`. A resumed run (`resumed_step` > 0) tells TensorBoard to forget later steps of
  /// older files.
  EventFile(const Files& files, const Path& folder, const Clock& clock, std::int64_t resumed_step);

  void append(std::int64_t step, std::span<const Scalar> scalars);

 private:
  void append_record(std::string_view event);

  const Clock* clock_;
  File file_;
};

/// CRC-32C (Castagnoli) of `bytes`, as iSCSI and TFRecord use it.
[[nodiscard]] std::uint32_t crc32c(Bytes bytes) noexcept;

}  // namespace argosy::telemetry
