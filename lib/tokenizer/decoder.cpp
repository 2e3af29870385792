#include "tokenizer/decoder.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <utility>

#include "core/utf8.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/parts.hpp"

namespace argosy::tokenizer {
namespace {

/// A decoder that sees all pieces.
template <class Change>
class OfPieces final : public Decoder {
 public:
  explicit OfPieces(Change change) : change_(std::move(change)) {}
  void apply(std::vector<std::string>& pieces) const override { change_(pieces); }

 private:
  Change change_;
};

template <class Change>
std::unique_ptr<Decoder> of_pieces(Change change) {
  return std::make_unique<OfPieces<Change>>(std::move(change));
}

std::size_t size_of(const std::vector<std::string>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), pieces.size(),
                         [](std::size_t sum, const std::string& piece) { return sum + piece.size(); });
}

void fuse(std::vector<std::string>& pieces) { pieces = {std::accumulate(pieces.begin(), pieces.end(), std::string{})}; }

/// From characters that stand for bytes. A piece that has others stands for itself.
void from_byte_characters(std::vector<std::string>& pieces) {
  std::string bytes;
  for (const std::string& piece : pieces) bytes += bytes_of_characters(piece).value_or(piece);
  pieces = {valid_utf8(bytes)};
}

std::optional<char> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || !piece.ends_with('>')) return std::nullopt;
  unsigned char byte = 0;
  const char* const end = piece.data() + 5;
  const auto [at, error] = std::from_chars(piece.data() + 3, end, byte, 16);
  return error == std::errc{} && at == end ? std::optional{static_cast<char>(byte)} : std::nullopt;
}

/// Pieces of bytes in a row are one text, or U+FFFD for each of them if they are no UTF-8.
void from_byte_pieces(std::vector<std::string>& pieces) {
  std::vector<std::string> out;
  std::string bytes;
  const auto end_bytes = [&] {
    if (bytes.empty()) return;
    if (first_invalid_utf8(bytes))
      out.insert(out.end(), bytes.size(), "\uFFFD");
    else
      out.push_back(bytes);
    bytes.clear();
  };
  for (std::string& piece : pieces) {
    if (const auto byte = byte_of(piece)) {
      bytes += *byte;
    } else {
      end_bytes();
      out.push_back(std::move(piece));
    }
  }
  end_bytes();
  pieces = std::move(out);
}

std::unique_ptr<Decoder> marks_to_blanks(const JsonNode& node) {
  std::string mark;
  append_utf8(mark, node.at("replacement").character());
  const auto scheme = node.find("prepend_scheme");
  const bool prepends = (scheme ? scheme->text() != "never" : true) && node.flag("add_prefix_space", true);
  return of_pieces([pattern = Pattern(mark), prepends](std::vector<std::string>& pieces) {
    for (bool first = true; std::string & piece : pieces)
      piece = pattern.replaced(piece, std::exchange(first, false) && prepends ? "" : " ");
  });
}

std::unique_ptr<Decoder> strip(const JsonNode& node) {
  std::string mark;
  append_utf8(mark, node.at("content").character());
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  return of_pieces([mark, start = node.at("start").whole(most),
                    stop = node.at("stop").whole(most)](std::vector<std::string>& pieces) {
    for (std::string& piece : pieces) {
      std::string_view rest = piece;
      for (std::int64_t i = 0; i < start && rest.starts_with(mark); ++i) rest.remove_prefix(mark.size());
      for (std::int64_t i = 0; i < stop && rest.ends_with(mark); ++i) rest.remove_suffix(mark.size());
      piece = std::string{rest};
    }
  });
}

}  // namespace

std::unique_ptr<Decoder> decoder_of(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Decoder>> steps;
    for (const JsonNode& step : node.at("decoders").elements()) steps.push_back(decoder_of(step));
    return of_pieces([steps = std::move(steps)](std::vector<std::string>& pieces) {
      const std::size_t size = size_of(pieces);
      for (const auto& step : steps) {
        step->apply(pieces);
        check_growth(size, size_of(pieces));
      }
    });
  }
  if (type == "ByteLevel") return of_pieces(from_byte_characters);
  if (type == "ByteFallback") return of_pieces(from_byte_pieces);
  if (type == "Fuse") return of_pieces(fuse);
  if (type == "Metaspace") return marks_to_blanks(node);
  if (type == "Strip") return strip(node);
  if (type == "Replace")
    return of_pieces(
        [pattern = Pattern(node.at("pattern")), content = node.at("content").text()](std::vector<std::string>& pieces) {
          for (std::string& piece : pieces)
            if (!piece.empty()) piece = pattern.replaced(piece, content);
        });
  node.refuse_type("decoder", "Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, Strip and Replace");
}

}  // namespace argosy::tokenizer
