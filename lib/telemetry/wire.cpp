#include "telemetry/wire.hpp"

namespace argosy::telemetry::wire {
namespace {

std::optional<std::uint64_t> take_varint(std::string_view& from) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; !from.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::string_view> take(std::string_view& from, std::uint64_t size) {
  if (size > from.size()) return std::nullopt;
  const std::string_view taken = from.substr(0, size);
  from.remove_prefix(size);
  return taken;
}

}  // namespace

std::optional<Field> field_of(std::string_view message, unsigned field) {
  while (!message.empty()) {
    const auto key = take_varint(message);
    if (!key) return std::nullopt;
    Field found;
    const auto kind = static_cast<Kind>(*key & 7U);
    if (kind == Kind::varint) {
      const auto number = take_varint(message);
      if (!number) return std::nullopt;
      found.number = *number;
    } else {
      std::optional<std::uint64_t> size = kind == Kind::fixed64 ? 8 : 4;
      if (kind == Kind::bytes) size = take_varint(message);
      if (kind != Kind::bytes && kind != Kind::fixed64 && kind != Kind::fixed32) return std::nullopt;
      const auto bytes = size ? take(message, *size) : std::nullopt;
      if (!bytes) return std::nullopt;
      found.bytes = *bytes;
    }
    if (*key >> 3 == field) return found;
  }
  return std::nullopt;
}

}  // namespace argosy::telemetry::wire
