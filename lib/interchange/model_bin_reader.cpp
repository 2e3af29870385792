#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "core/error.hpp"
#include "interchange/convert.hpp"
#include "interchange/model_bin.hpp"

namespace argosy::interchange {
namespace {

constexpr std::uint32_t newest_version = 6;
constexpr std::uint8_t most_dimensions = 8;
constexpr std::uint64_t most_variable_bytes =
    std::uint64_t{std::numeric_limits<std::uint32_t>::max()} * 4;  // of a variable

/// The bytes of a file from the first to the last, of which the values of variables are skipped.
class BinCursor {
 public:
  explicit BinCursor(const File& file) : file_(file), size_bytes_(file.stat().size_bytes) {}

  /// what: for messages.
  template <class T>
  T number(std::string_view what) {
    T value{};
    const Bytes bytes = take(sizeof value, what);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  /// u16 length with the NUL, bytes, NUL.
  std::string text(std::string_view what) {
    const auto size = number<std::uint16_t>(what);
    const Bytes bytes = take(size, what);
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (text.find('\0') != text.size() - 1 || text.empty())
      refuse(std::string{what}, "a text with one NUL, at its end", fmt::format("{} other bytes", size));
    return std::string{text.substr(0, text.size() - 1)};
  }
  void skip(std::uint64_t count, std::string_view what) {
    if (count > left()) too_short(count, what);
    at_ += count;
  }
  [[nodiscard]] std::uint64_t at() const noexcept { return at_; }
  [[nodiscard]] std::uint64_t left() const noexcept { return size_bytes_ - at_; }
  /// Of all that was taken.
  [[nodiscard]] Digest digest() const { return hasher_.digest(); }

  [[noreturn]] void refuse(const std::string& where, std::string wanted, std::string got) const {
    throw_error(Fault::corrupt, fmt::format("{}, {}", file_.path().string(), where), std::move(wanted), std::move(got),
                "the file is damaged or no model of CTranslate2; get it again");
  }

 private:
  [[noreturn]] void too_short(std::uint64_t count, std::string_view what) const {
    refuse(std::string{what}, fmt::format("{} bytes at byte {}", count, at_), fmt::format("{}", left()));
  }
  /// Valid until the next call.
  Bytes take(std::size_t count, std::string_view what) {
    if (count > left()) too_short(count, what);
    if (at_ < buffer_begin_ || at_ + count > buffer_begin_ + buffer_.size()) {
      constexpr std::uint64_t piece = 1 << 16;  // at least as long as a text
      buffer_.resize(std::min(std::max<std::uint64_t>(piece, count), left()));
      buffer_begin_ = at_;
      file_.read_at(buffer_, at_);
    }
    const Bytes bytes = Bytes{buffer_}.subspan(static_cast<std::size_t>(at_ - buffer_begin_), count);
    at_ += count;
    hasher_.update(bytes);
    return bytes;
  }

  const File& file_;
  const std::uint64_t size_bytes_;
  std::uint64_t at_ = 0, buffer_begin_ = 0;
  std::vector<std::byte> buffer_;
  Hasher hasher_;
};

/// By the code of the format; before version 4, by the size of an element.
std::optional<DType> type_of_code(std::uint32_t version, std::uint8_t code) {
  constexpr std::array by_code{DType::f32, DType::i8, DType::i16, DType::i32, DType::f16, DType::bf16};
  if (version >= 4) return code < by_code.size() ? std::optional{by_code[code]} : std::nullopt;
  if (code == 4) return DType::f32;
  if (code == 2) return DType::i16;
  return code == 1 ? std::optional{DType::i8} : std::nullopt;
}

ModelBinFile::Variable read_variable(BinCursor& cursor, std::uint32_t version, const std::string& where) {
  ModelBinFile::Variable variable;
  const auto rank = cursor.number<std::uint8_t>(where);
  if (rank > most_dimensions)
    cursor.refuse(where, fmt::format("at most {} dimensions", most_dimensions), std::to_string(rank));
  for (std::uint8_t i = 0; i < rank; ++i) variable.shape.push_back(cursor.number<std::uint32_t>(where));
  const auto code = cursor.number<std::uint8_t>(where);
  const std::optional<DType> dtype = type_of_code(version, code);
  if (!dtype) cursor.refuse(where, "a type of the format", fmt::format("type {}", code));
  variable.dtype = *dtype;
  const std::uint64_t said =
      std::uint64_t{cursor.number<std::uint32_t>(where)} * (version >= 4 ? 1 : size_of(variable.dtype));
  // Refused before it overflows: the largest variable of the format has fewer than 2^34 bytes.
  std::uint64_t bytes = size_of(variable.dtype);
  for (const std::int64_t extent : variable.shape) {
    if (bytes <= most_variable_bytes && extent > 0) bytes *= static_cast<std::uint64_t>(extent);
  }
  const bool fits = bytes <= most_variable_bytes;
  if (std::ranges::count(variable.shape, 0) > 0) bytes = 0;
  if (!fits || bytes != said)
    cursor.refuse(
        where,
        fmt::format("the bytes of shape [{}] and type {}", fmt::join(variable.shape, ", "), name_of(variable.dtype)),
        fmt::format("{} bytes", said));
  variable.begin = cursor.at();
  cursor.skip(bytes, where);
  return variable;
}

}  // namespace

std::int64_t ModelBinFile::Variable::elements() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

ModelBinFile::ModelBinFile(const Files& files, Path path) : files_(files), path_(std::move(path)) {
  const File file = files_.open(path_);
  BinCursor cursor{file};
  const auto version = cursor.number<std::uint32_t>("version");
  if (version == 0) cursor.refuse("version", fmt::format("1 to {}", newest_version), "0");
  if (version > newest_version) {
    throw_claim(Fault::usage,
                fmt::format("{} has version {} of its format, or is no model of CTranslate2", path_.string(), version),
                path_.string(), fmt::format("version {} or lower", newest_version), std::to_string(version),
                "convert the model with an older CTranslate2, or use a newer Argosy");
  }
  if (version >= 2) {
    spec_ = cursor.text("name of the specification");
    revision_ = cursor.number<std::uint32_t>("revision");
  }
  for (auto rest = cursor.number<std::uint32_t>("number of variables"); rest > 0; --rest) {
    std::string name = cursor.text("name of a variable");
    const std::string where = fmt::format("variable \"{}\"", name);
    if (variables_.contains(name)) cursor.refuse(where, "a name that occurs once", "a second variable of that name");
    Variable variable = read_variable(cursor, version, where);
    variables_.emplace(std::move(name), std::move(variable));
  }
  if (version >= 3) {
    for (auto rest = cursor.number<std::uint32_t>("number of aliases"); rest > 0; --rest) {
      std::string alias = cursor.text("name of an alias"), target = cursor.text("target of an alias");
      const std::string where = fmt::format("alias \"{}\"", alias);
      if (find(alias) != nullptr) cursor.refuse(where, "a name that occurs once", "a second use of that name");
      if (find(target) == nullptr) cursor.refuse(where, "the name of a variable", fmt::format("\"{}\"", target));
      const auto other = aliases_.find(target);
      aliases_.emplace(std::move(alias), other == aliases_.end() ? std::move(target) : other->second);
    }
  }
  if (cursor.left() > 0)
    cursor.refuse("end", "nothing after the last alias", fmt::format("{} more bytes", cursor.left()));
  digest_ = cursor.digest();
}

const ModelBinFile::Variable* ModelBinFile::find(std::string_view name) const noexcept {
  const auto alias = aliases_.find(name);
  const auto found = variables_.find(alias == aliases_.end() ? name : std::string_view{alias->second});
  return found == variables_.end() ? nullptr : &found->second;
}

std::vector<std::byte> ModelBinFile::bytes(const Variable& variable) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(variable.elements()) * size_of(variable.dtype));
  files_.open(path_).read_at(bytes, variable.begin);
  return bytes;
}

void ModelBinFile::read(const Variable& variable, std::int64_t begin, std::span<float> to) const {
  ARGOSY_CHECK(begin >= 0 && begin + std::ssize(to) <= variable.elements(), "{} + {} of {}", begin, to.size(),
               variable.elements());
  const File file = files_.open(path_);
  const std::uint64_t at = variable.begin + static_cast<std::uint64_t>(begin) * size_of(variable.dtype);
  const auto converted = [&]<class T>(T, auto&& to_float) {
    std::vector<T> values(to.size());
    file.read_at(std::as_writable_bytes(std::span{values}), at);
    std::ranges::transform(values, to.begin(), to_float);
  };
  const auto number = [](auto value) { return static_cast<float>(value); };
  switch (variable.dtype) {
    case DType::f32:
      return file.read_at(std::as_writable_bytes(to), at);
    case DType::f16:
      return converted(std::uint16_t{}, f32_from_f16);
    case DType::bf16:
      return converted(std::uint16_t{}, f32_from_bf16);
    case DType::i8:
      return converted(std::int8_t{}, number);
    case DType::i16:
      return converted(std::int16_t{}, number);
    case DType::i32:
      return converted(std::int32_t{}, number);
    default:
      ARGOSY_CHECK(false, "model.bin of {}", name_of(variable.dtype));
  }
}

}  // namespace argosy::interchange
