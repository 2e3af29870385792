#include "data/piece_table.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <boost/json.hpp>

#include "core/error.hpp"

namespace argosy::data {
namespace {

constexpr std::string_view mark = "{\"argosy_pieces\":";
constexpr std::int64_t table_version = 1;
constexpr std::string_view blank = "\u2581";  // as SentencePiece spells it
constexpr const char* advice = "get the tokenizer's files again";

[[noreturn]] void refuse(std::string_view where, const std::string& wanted, const std::string& got) {
  throw_error(Fault::data, std::string{where}, wanted, got, advice);
}

std::unique_ptr<const sentencepiece::SentencePieceProcessor> loaded(const std::string& bytes, std::string_view name,
                                                                    const char* which) {
  auto model = std::make_unique<sentencepiece::SentencePieceProcessor>();
  if (model->LoadFromSerializedProto(bytes).ok()) return model;
  refuse(name, fmt::format("a SentencePiece model for the {}", which),
         fmt::format("{} bytes that are none", bytes.size()));
}

/// The languages of the models that M2M-100's tokenizer serves, in the order of their ids.
std::string_view languages_of(std::string_view set) {
  if (set == "m2m100")
    return "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht "
           "hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl "
           "ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";
  if (set == "wmt21") return "en ha is ja cs ru zh de";
  return {};
}

bool is_control(std::string_view piece) { return piece == "<s>" || piece == "</s>" || piece == "<pad>"; }

}  // namespace

bool is_packed(std::string_view bytes) { return bytes.starts_with(mark); }

std::string pack(const TableParts& parts) {
  const boost::json::object sizes{{"argosy_pieces", table_version},
                                  {"source", parts.source.size()},
                                  {"target", parts.target.size()},
                                  {"table", parts.table.size()},
                                  {"languages", parts.languages}};
  return boost::json::serialize(sizes) + "\n" + parts.source + parts.target + parts.table;
}

TableParts unpack(std::string_view bytes, std::string_view name) {
  const std::size_t line = std::min(bytes.find('\n'), bytes.size());
  boost::json::error_code error;
  const boost::json::value head = boost::json::parse(bytes.substr(0, line), error);
  const auto number = [&](const char* key) {
    const boost::json::value* const value = error || !head.is_object() ? nullptr : head.get_object().if_contains(key);
    const bool good = value != nullptr && value->is_int64() && value->get_int64() >= 0;
    if (!good) refuse(name, fmt::format("a first line that says \"{}\"", key), "another one");
    return static_cast<std::uint64_t>(value->get_int64());
  };
  if (number("argosy_pieces") != static_cast<std::uint64_t>(table_version))
    throw_error(Fault::data, std::string{name}, fmt::format("version {} of Argosy's piece tables", table_version),
                "another one", "use a newer Argosy");
  TableParts parts;
  std::string_view left = bytes.substr(std::min(line + 1, bytes.size()));
  for (auto [key, part] : {std::pair{"source", &parts.source}, {"target", &parts.target}, {"table", &parts.table}}) {
    const std::uint64_t size = number(key);
    if (size > left.size()) refuse(name, fmt::format("{} bytes for the {}", size, key), std::to_string(left.size()));
    *part = left.substr(0, size);
    left.remove_prefix(size);
  }
  const boost::json::value* const languages = head.get_object().if_contains("languages");
  if (!left.empty() || languages == nullptr || !languages->is_string())
    refuse(name, "the bytes and the languages that the first line says", "others");
  parts.languages = languages->get_string();
  return parts;
}

PieceTable::PieceTable(const TableParts& parts, std::string_view name)
    : source_(loaded(parts.source, name, "source")), takes_codes_(parts.languages.empty()) {
  if (!parts.target.empty()) target_ = loaded(parts.target, name, "target");
  read_table(parts.table, fmt::format("{}: vocab.json", name));
  table_size_ = size_;
  if (!takes_codes_) add_languages(parts.languages, name);
  if (pieces_.back() == "<pad>") --size_;
}

void PieceTable::read_table(const std::string& table, std::string_view name) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(table, error);
  if (error || !value.is_object()) refuse(name, "a JSON object", error ? error.message() : "another value");
  const boost::json::object& all = value.get_object();
  pieces_.resize(all.size());
  for (const auto& [key, id] : all) {
    const std::string piece{key};
    const bool in_range = id.is_int64() && id.get_int64() >= 0 && id.get_int64() < std::ssize(pieces_);
    if (!in_range || !pieces_[static_cast<std::size_t>(id.get_int64())].empty())
      refuse(name, fmt::format("each of the ids 0 to {} once", std::ssize(pieces_) - 1),
             fmt::format("\"{}\": {}", piece, boost::json::serialize(id)));
    if (piece.empty()) refuse(name, "pieces with a spelling", "an empty one");
    pieces_[static_cast<std::size_t>(id.get_int64())] = piece;
    ids_[piece] = narrow<std::int32_t>(id.get_int64());
  }
  for (const char* const needed : {"<unk>", "</s>"})
    if (!ids_.contains(needed)) refuse(name, fmt::format("the piece {}", needed), "a table without it");
  unknown_ = ids_.at("<unk>");
  size_ = narrow<std::int32_t>(std::ssize(pieces_));
}

void PieceTable::add_languages(const std::string& languages, std::string_view name) {
  std::string_view codes = languages_of(languages);
  if (codes.empty()) refuse(name, "the languages of m2m100 or wmt21", languages);
  while (!codes.empty()) {
    const std::size_t end = std::min(codes.find(' '), codes.size());
    std::string piece = fmt::format("__{}__", codes.substr(0, end));
    codes.remove_prefix(std::min(end + 1, codes.size()));
    if (!ids_.emplace(piece, size_++).second)
      refuse(name, fmt::format("a table without {}", piece), "one that has it, though it is a language's token");
    pieces_.push_back(std::move(piece));
  }
}

PieceTable::~PieceTable() = default;

std::vector<std::int32_t> PieceTable::encode(std::string_view text, Side side) const {
  std::vector<std::int32_t> ids;
  const auto add = [&](std::string_view piece) {
    const auto found = ids_.find(piece);
    ids.push_back(found != ids_.end() && found->second < size_ ? found->second : unknown_);
  };
  if (takes_codes_ && text.starts_with(">>")) {
    if (const std::size_t end = text.find("<<"); end != std::string_view::npos) {
      add(text.substr(0, end + 2));
      text.remove_prefix(end + 2);
    }
  }
  std::vector<std::string> pieces;
  const auto status = model(side).Encode(text, &pieces);
  ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  for (const std::string& piece : pieces) add(piece);
  return ids;
}

std::string PieceTable::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids)
    if (id < table_size_ && !is_control(piece(id))) pieces.push_back(piece(id));
  std::string text;
  const auto status = model(Side::target).Decode(pieces, &text);
  ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  // Pieces of the source alone are spelled out as they are.
  for (std::size_t at = 0; (at = text.find(blank, at)) != std::string::npos;) text.replace(at, blank.size(), " ");
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

float PieceTable::score(std::int32_t id) const {
  for (const Side side : {Side::target, Side::source}) {
    const sentencepiece::SentencePieceProcessor& of = model(side);
    const int found = of.PieceToId(piece(id));
    if (of.IdToPiece(found) == piece(id)) return of.GetScore(found);
  }
  return 0;
}

std::optional<std::int64_t> PieceTable::id_of(std::string_view piece) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end() || found->second >= size_) return std::nullopt;
  return found->second;
}

}  // namespace argosy::data
