#include "tokenizer/piece_model.hpp"

#include <bit>
#include <cstring>
#include <functional>

#include "core/error.hpp"

namespace argosy::tokenizer {
namespace {

/// The fields of a protobuf message, as far as a SentencePiece model needs them: numbers, and bytes of text or
/// messages.
class Message {
 public:
  explicit Message(std::string_view bytes) : left_(bytes) {}

  /// Calls number(field, value) and text(field, bytes) for each field. A 32-bit value is given as its four bytes.
  void read(const std::function<void(std::uint64_t, std::uint64_t)>& number,
            const std::function<void(std::uint64_t, std::string_view)>& text) {
    while (!left_.empty()) {
      const std::uint64_t key = varint(), field = key >> 3;
      switch (key & 7) {
        case 0:
          number(field, varint());
          break;
        case 1:
          text(field, take(8));
          break;
        case 2:
          text(field, take(varint()));
          break;
        case 5:
          text(field, take(4));
          break;
        default:
          damaged();
      }
    }
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 127U) << shift;
      if (byte < 128) return value;
    }
    damaged();
  }
  std::string_view take(std::uint64_t size) {
    if (size > left_.size()) damaged();
    const std::string_view part = left_.substr(0, size);
    left_.remove_prefix(size);
    return part;
  }
  [[noreturn]] static void damaged() {
    throw_error(Fault::data, "tokenizer.model", "a SentencePiece model", "fields that end too late",
                "train the tokenizer again");
  }

  std::string_view left_;
};

void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 128; value >>= 7) to += std::bit_cast<char>(narrow<std::uint8_t>(128 | (value & 127)));
  to += std::bit_cast<char>(narrow<std::uint8_t>(value));
}

void append_number(std::string& to, std::uint64_t field, std::uint64_t value) {
  append_varint(to, field << 3);
  append_varint(to, value);
}

void append_field(std::string& to, std::uint64_t field, std::string_view bytes) {
  append_varint(to, field << 3 | 2);
  append_varint(to, bytes.size());
  to += bytes;
}

std::string piece_message(const Pieces& pieces, std::size_t id) {
  std::string message;
  append_field(message, 1, pieces.texts[id]);
  append_varint(message, 2 << 3 | 5);
  message.append(reinterpret_cast<const char*>(&pieces.scores[id]), sizeof(float));
  if (pieces.types[id] != PieceType::normal) append_number(message, 3, static_cast<std::uint64_t>(pieces.types[id]));
  return message;
}

}  // namespace

Pieces::Pieces(std::string_view model) {
  const auto nothing = [](std::uint64_t, auto) {};
  Message(model).read(nothing, [&](std::uint64_t field, std::string_view bytes) {
    if (field == 1) {
      texts.emplace_back();
      scores.push_back(0);
      types.push_back(PieceType::normal);
      Message(bytes).read(
          [&](std::uint64_t of, std::uint64_t value) {
            if (of == 3) types.back() = static_cast<PieceType>(value);
          },
          [&](std::uint64_t of, std::string_view value) {
            if (of == 1) texts.back() = value;
            if (of == 2 && value.size() == sizeof(float)) std::memcpy(&scores.back(), value.data(), sizeof(float));
          });
    } else if (field == 2) {
      Message(bytes).read(
          [&](std::uint64_t of, std::uint64_t value) {
            if (of == 3) model_type = value;
            if (of == 35) byte_fallback = value != 0;
          },
          nothing);
    } else if (field == 3) {
      Message(bytes).read(
          [&](std::uint64_t of, std::uint64_t value) {
            if (of == 3) dummy_prefix = value != 0;
            if (of == 4) no_extra_spaces = value != 0;
          },
          [&](std::uint64_t of, std::string_view value) {
            if (of == 2) character_map = value;
          });
    }
  });
}

std::string without_normalization(std::string_view model) {
  // Of several values of a field, readers take the last: the character map, the dummy prefix, the removal of blanks.
  std::string changes;
  append_field(changes, 2, "");
  append_number(changes, 3, 0);
  append_number(changes, 4, 0);
  std::string out{model};
  append_field(out, 3, changes);  // messages that occur twice are merged
  return out;
}

std::string with_pieces(std::string_view model, const Pieces& pieces) {
  std::string out;
  for (std::size_t id = 0; id < pieces.texts.size(); ++id) append_field(out, 1, piece_message(pieces, id));
  Message(model).read([](std::uint64_t, std::uint64_t) {},
                      [&](std::uint64_t field, std::string_view bytes) {
                        if (field == 1 || field == 4) return;  // 4: encodings by which trainers test the old pieces
                        std::string content{bytes};
                        // The trainer's vocab_size; of several values of a field, readers take the last.
                        if (field == 2) append_number(content, 4, pieces.texts.size());
                        append_field(out, field, content);
                      });
  return out;
}

}  // namespace argosy::tokenizer
