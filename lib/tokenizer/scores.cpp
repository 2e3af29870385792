#include "tokenizer/scores.hpp"

#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "core/error.hpp"

namespace argosy::tokenizer {
namespace {

/// Boost's parser tells it what it meets: keys open a value, brackets nest.
class ScoreHandler {
 public:
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = max_object_size, max_key_size = max_object_size,
                               max_string_size = max_object_size;
  using Code = boost::json::error_code;
  using Text = boost::json::string_view;

  bool on_object_begin(Code&) { return open(); }
  bool on_object_end(std::size_t, Code&) { return close(); }
  bool on_array_begin(Code&) {
    if (depth_ == 2 && in_vocabulary()) scores_.clear();  // of a key that occurs twice, the last counts
    return open();
  }
  bool on_array_end(std::size_t, Code&) { return close(); }
  bool on_key_part(Text part, std::size_t, Code&) {
    key_ += part;
    return true;
  }
  bool on_key(Text part, std::size_t, Code&) {
    key_ += part;
    if (depth_ == 1) in_model_ = key_ == "model";
    if (depth_ == 2) in_vocabulary_ = key_ == "vocab";
    key_.clear();
    return true;
  }
  bool on_number_part(Text part, Code&) {
    number_ += part;
    return true;
  }
  bool on_int64(std::int64_t, Text part, Code&) { return add(part); }
  bool on_uint64(std::uint64_t, Text part, Code&) { return add(part); }
  bool on_double(double, Text part, Code&) { return add(part); }

  // What has no numbers.
  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_string_part(Text, std::size_t, Code&) { return true; }
  bool on_string(Text, std::size_t, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

  std::vector<std::string> take() { return std::move(scores_); }

 private:
  [[nodiscard]] bool in_vocabulary() const { return in_model_ && in_vocabulary_; }
  bool open() {
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  bool add(Text part) {
    number_ += part;
    if (depth_ == 4 && in_vocabulary()) scores_.push_back(number_);
    number_.clear();
    return true;
  }

  int depth_ = 0;  // {"model": {"vocab": [[piece, score]]}} has four
  bool in_model_ = false, in_vocabulary_ = false;
  std::string key_, number_;
  std::vector<std::string> scores_;
};

constexpr int largest_power = std::numeric_limits<double>::max_exponent10;

const std::array<double, largest_power + 1>& powers_of_ten() {
  static const auto powers = [] {
    std::array<double, largest_power + 1> all{};
    for (int exponent = 0; exponent <= largest_power; ++exponent) {
      const std::string text = fmt::format("1e{}", exponent);
      std::from_chars(text.data(), text.data() + text.size(), all[static_cast<std::size_t>(exponent)]);
    }
    return all;
  }();
  return powers;
}

}  // namespace

double as_serde_json(std::string_view number) {
  const bool negative = number.starts_with('-');
  std::uint64_t digits = 0;
  std::int64_t exponent = 0;
  bool fraction = false, full = false;
  std::size_t at = negative ? 1 : 0;
  for (; at < number.size() && number[at] != 'e' && number[at] != 'E'; ++at) {
    if (number[at] == '.') {
      fraction = true;
      continue;
    }
    const auto digit = static_cast<std::uint64_t>(number[at] - '0');
    full = full || digits > (std::numeric_limits<std::uint64_t>::max() - digit) / 10;
    if (!full) digits = digits * 10 + digit;
    if (fraction != full) exponent += fraction ? -1 : 1;
  }
  if (at < number.size()) {
    std::int64_t written = 0;
    const bool plus = number.substr(at + 1).starts_with('+');
    const char* const end = number.data() + number.size();
    const auto error = std::from_chars(number.data() + at + (plus ? 2 : 1), end, written).ec;
    constexpr std::int64_t beyond = 100'000;  // any double
    exponent +=
        error == std::errc{} ? std::clamp(written, -beyond, beyond) : (number[at + 1] == '-' ? -beyond : beyond);
  }
  auto value = static_cast<double>(digits);
  for (; exponent < -largest_power && value != 0; exponent += largest_power) value /= powers_of_ten().back();
  if (value != 0 && exponent > largest_power) value = std::numeric_limits<double>::infinity();
  if (value != 0 && std::isfinite(value)) {
    const double power = powers_of_ten()[static_cast<std::size_t>(std::abs(exponent))];
    value = exponent >= 0 ? value * power : value / power;
  }
  return negative ? -value : value;
}

std::vector<std::string> spelled_scores(std::string_view json) {
  boost::json::basic_parser<ScoreHandler> parser{boost::json::parse_options{}};
  boost::json::error_code error;
  parser.write_some(false, json.data(), json.size(), error);
  ARGOSY_CHECK(!error.failed(), "scores of a valid JSON text: {}", error.message());
  return parser.handler().take();
}

std::vector<double> unigram_scores(std::string_view json) {
  std::vector<double> scores;
  for (const std::string& number : spelled_scores(json)) scores.push_back(as_serde_json(number));
  return scores;
}

}  // namespace argosy::tokenizer
