#include "comm/exit_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "core/error.hpp"
#include "core/file_name.hpp"

namespace argosy::comm {
namespace {

bool is_word(std::string_view text) {
  constexpr std::size_t longest = 32;
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

/// Up to the next space, which is taken away too.
std::string_view next_part(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

bool holds_a_word(const Files& files, const Path& path) {
  try {
    const auto facts = files.stat(path);
    return facts && facts->is_regular && facts->size_bytes > 0;
  } catch (const Error&) {  // a script cannot read it either
    return false;
  }
}

}  // namespace

std::optional<ExitRecord> parse_exit(std::string_view text) {
  constexpr std::int64_t highest_code = 255;
  if (text.ends_with('\n')) text.remove_suffix(1);
  const bool third = std::count(text.begin(), text.end(), ' ') == 2;
  const auto code = count_in(next_part(text)), step = count_in(next_part(text));
  if (!code || *code > highest_code || !step || (third && !is_word(text)) || (!third && !text.empty()))
    return std::nullopt;
  return ExitRecord{.code = static_cast<int>(*code), .step = *step, .why = std::string(text)};
}

void ExitFile::clear() const {
  if (path_.empty()) return;
  try {
    files_.remove(path_);
  } catch (const Error& error) {
    if (!holds_a_word(files_, path_)) return;
    const std::string& got = error.facts().got;
    throw_claim(Fault::io, fmt::format("{}: cannot remove the exit file of an earlier run: {}", path_.string(), got),
                path_.string(), "to remove the exit file of an earlier run", got,
                "remove it, or set ARGOSY_EXIT_FILE to another file");
  }
}

void ExitFile::write_agreed(int code, std::int64_t step, std::string_view why) const {
  if (!path_.empty())
    files_.write_atomically(path_, fmt::format("{} {}{}{}\n", code, step, why.empty() ? "" : " ", why));
}

void ExitFile::write_first(int code, std::int64_t step) const noexcept {
  if (path_.empty()) return;
  try {
    static_cast<void>(files_.write_if_absent(path_, fmt::format("{} {}\n", code, step)));  // keeps another rank's
  } catch (const std::exception&) {
    // The rank is failing already; its own error is the one to report.
  }
}

}  // namespace argosy::comm
