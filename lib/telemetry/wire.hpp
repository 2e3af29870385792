#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/bytes.hpp"

/// How sinks put bytes together: checksums, and the wire format of protobuf, in which a value follows a key of its
/// field number and kind.
namespace argosy::telemetry::wire {

/// CRC-32 with a reversed polynomial.
template <std::uint32_t polynomial>
[[nodiscard]] std::uint32_t crc(Bytes bytes) noexcept {
  static constexpr std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> sums{};
    for (std::uint32_t i = 0; i < sums.size(); ++i) {
      std::uint32_t sum = i;
      for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1U) != 0 ? polynomial : 0U);
      sums[i] = sum;
    }
    return sums;
  }();
  std::uint32_t sum = ~0U;
  for (const std::byte byte : bytes) sum = table[(sum ^ static_cast<std::uint32_t>(byte)) & 0xff] ^ (sum >> 8);
  return ~sum;
}

template <class T>
void put_raw(std::string& out, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  out.append(bytes.data(), bytes.size());
}

enum class Kind : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

inline void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
inline void put_key(std::string& out, unsigned field, Kind kind) {
  put_varint(out, field << 3 | static_cast<unsigned>(kind));
}
inline void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, Kind::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}
inline void put_number(std::string& out, unsigned field, std::int64_t value) {
  put_key(out, field, Kind::varint);
  put_varint(out, static_cast<std::uint64_t>(value));
}

/// A field of a message: its number, for Kind::varint, or else its bytes.
struct Field {
  std::uint64_t number = 0;
  std::string_view bytes;
};
/// The first field of that number; nullopt if there is none before the message's end or damage.
[[nodiscard]] std::optional<Field> field_of(std::string_view message, unsigned field);

}  // namespace argosy::telemetry::wire
