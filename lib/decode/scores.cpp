#include "decode/scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/version.hpp"
#include "decode/words.hpp"

namespace argosy::decode {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }

/// The 13a rules, each over the whole line, left to right, non-overlapping. Only the final split knows about Unicode.
std::vector<std::string> tokens_13a(std::string_view line) {
  std::string text{line};
  while (!text.empty()) {  // white space at the right end, multi-byte ones included
    std::size_t cut = 0;
    for (std::size_t size = 1; size <= 3 && size <= text.size(); ++size) {
      if (space_at(text, text.size() - size) == size) cut = size;
    }
    if (cut == 0) break;
    text.erase(text.size() - cut);
  }
  boost::replace_all(text, "<skipped>", "");
  boost::replace_all(text, "-\n", "");
  boost::replace_all(text, "\n", " ");
  for (const auto& [entity, character] :
       {std::pair{"&quot;", "\""}, std::pair{"&amp;", "&"}, std::pair{"&lt;", "<"}, std::pair{"&gt;", ">"}}) {
    boost::replace_all(text, entity, character);
  }
  text = " " + text + " ";

  std::string out;
  for (const char c : text) {
    const bool symbol = (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
                        (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
    if (symbol) {
      out += {' ', c, ' '};
    } else {
      out += c;
    }
  }
  // One two-character rule: where first(a) and second(b) hold, both leave the line and `put` writes them.
  const auto pairs = [](const std::string& in, auto first, auto second, auto put) {
    std::string result;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (i + 1 < in.size() && first(in[i]) && second(in[i + 1])) {
        put(result, in[i], in[i + 1]);
        ++i;
      } else {
        result += in[i];
      }
    }
    return result;
  };
  const auto not_digit = [](char c) { return !is_digit(c); };
  out = pairs(out, not_digit, is_stop, [](std::string& to, char a, char b) { to += {a, ' ', b, ' '}; });
  out = pairs(out, is_stop, not_digit, [](std::string& to, char a, char b) { to += {' ', a, ' ', b}; });
  out = pairs(
      out, is_digit, [](char c) { return c == '-'; },
      [](std::string& to, char a, char b) {
        to += {a, ' ', b, ' '};
      });
  return words_of(out);
}

using Grams = std::unordered_map<std::string, std::int64_t>;

/// n-grams of `pieces`, joined by a byte that UTF-8 never holds.
Grams grams_of(const std::vector<std::string>& pieces, std::size_t n) {
  Grams grams;
  for (std::size_t i = 0; i + n <= pieces.size(); ++i) {
    std::string key;
    for (std::size_t k = i; k < i + n; ++k) (key += pieces[k]) += '\xff';
    ++grams[key];
  }
  return grams;
}

std::int64_t matches_of(const Grams& hypothesis, const Grams& reference) {
  std::int64_t matches = 0;
  for (const auto& [gram, count] : hypothesis) {
    if (const auto found = reference.find(gram); found != reference.end()) matches += std::min(count, found->second);
  }
  return matches;
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> found;
  for (const std::string& word : words_of(text)) {
    for (const char c : word) {
      if ((static_cast<unsigned char>(c) & 0xc0U) != 0x80U || found.empty()) found.emplace_back();
      found.back() += c;
    }
  }
  return found;
}

std::int64_t grams_in(std::size_t pieces, std::size_t n) {
  return pieces >= n ? static_cast<std::int64_t>(pieces - n + 1) : 0;
}

}  // namespace

std::string signature_of(std::string_view settings) { return fmt::format("{}|version:argosy-{}", settings, version()); }

void BleuCounts::add(std::string_view hypothesis, std::string_view reference) {
  const auto hyp = tokens_13a(hypothesis), ref = tokens_13a(reference);
  for (std::size_t n = 1; n <= 4; ++n) {
    counts_[n - 1] += matches_of(grams_of(hyp, n), grams_of(ref, n));
    counts_[n + 3] += grams_in(hyp.size(), n);
  }
  counts_[8] += static_cast<std::int64_t>(hyp.size());
  counts_[9] += static_cast<std::int64_t>(ref.size());
}

double BleuCounts::score() const {
  if (std::all_of(counts_.begin(), counts_.begin() + 4, [](std::int64_t c) { return c == 0; })) return 0.0;
  // In sacreBLEU's order of operations, so that not even the last bit differs.
  double log_sum = 0.0, doubling = 1.0;
  for (std::size_t n = 0; n < 4; ++n) {
    if (counts_[n + 4] == 0) return 0.0;  // an order without a single n-gram has precision 0
    const auto total = static_cast<double>(counts_[n + 4]);
    if (counts_[n] == 0) doubling *= 2.0;
    log_sum += std::log(counts_[n] == 0 ? 100.0 / (doubling * total) : 100.0 * static_cast<double>(counts_[n]) / total);
  }
  const auto hyp = static_cast<double>(counts_[8]), ref = static_cast<double>(counts_[9]);
  const double brevity = hyp < ref ? std::exp(1.0 - ref / hyp) : 1.0;
  return brevity * std::exp(log_sum / 4.0);
}

void ChrfCounts::add(std::string_view hypothesis, std::string_view reference) {
  const auto hyp = characters_of(hypothesis), ref = characters_of(reference);
  for (std::size_t n = 1; n <= 6; ++n) {
    std::int64_t* at = &counts_[3 * (n - 1)];
    const std::int64_t in_reference = grams_in(ref.size(), n);
    // A sentence without reference n-grams of this order does not count its own against itself.
    at[0] += in_reference > 0 ? grams_in(hyp.size(), n) : 0;
    at[1] += in_reference;
    at[2] += matches_of(grams_of(hyp, n), grams_of(ref, n));
  }
}

double ChrfCounts::score() const {
  double precision = 0.0, recall = 0.0;
  int orders = 0;
  for (std::size_t n = 0; n < 6; ++n) {
    const auto* at = &counts_[3 * n];
    if (at[0] == 0 || at[1] == 0) continue;
    precision += static_cast<double>(at[2]) / static_cast<double>(at[0]);
    recall += static_cast<double>(at[2]) / static_cast<double>(at[1]);
    ++orders;
  }
  if (orders == 0 || precision + recall == 0.0) return 0.0;
  precision /= orders;
  recall /= orders;
  return 100.0 * (5.0 * precision * recall / (4.0 * precision + recall));
}

}  // namespace argosy::decode
