#include "core/error.hpp"

#include <array>
#include <string_view>

namespace argosy {
namespace {

std::string sentence_of(const Facts& facts) {
  if (!facts.sentence.empty()) return facts.sentence;
  std::string text = facts.where;
  const auto add = [&text](std::string_view separator, std::string_view word, const std::string& part) {
    if (part.empty()) return;
    if (!text.empty()) text += separator;
    text += word;
    text += part;
  };
  add(": ", "expected ", facts.wanted);
  add(facts.wanted.empty() ? ": " : ", ", "got ", facts.got);
  add("; ", "", facts.remedy);
  return text;
}

}  // namespace

Exit exit_code(Fault fault) noexcept {
  constexpr std::array codes{Exit::usage, Exit::usage, Exit::data,    Exit::io,      Exit::io,
                             Exit::comm,  Exit::comm,  Exit::numeric, Exit::internal};  // by Fault
  static_assert(codes.size() == static_cast<std::size_t>(Fault::internal) + 1);
  return codes[static_cast<std::size_t>(fault)];
}

Error::Error(Fault fault, Facts facts, std::source_location at)
    : std::runtime_error(sentence_of(facts)), fault_(fault), facts_(std::move(facts)), at_(at) {}

std::string Error::problem() const {
  std::string text = what();
  if (facts_.remedy.empty() || !text.ends_with(facts_.remedy)) return text;
  text.resize(text.size() - facts_.remedy.size());
  while (!text.empty() && std::string_view(" ;:").find(text.back()) != std::string_view::npos) text.pop_back();
  return text;
}

void throw_error(Fault fault, std::string where, std::string wanted, std::string got, std::string remedy,
                 std::source_location at) {
  throw Error{fault, {"", std::move(wanted), std::move(got), std::move(where), std::move(remedy)}, at};
}

void throw_claim(Fault fault, std::string claim, std::string where, std::string wanted, std::string got,
                 std::string remedy, std::source_location at) {
  if (!remedy.empty()) claim += "; " + remedy;
  throw Error{fault, {std::move(claim), std::move(wanted), std::move(got), std::move(where), std::move(remedy)}, at};
}

void throw_broken_invariant(const char* condition, const std::string& text, std::source_location at) {
  throw Error{Fault::internal,
              {.wanted = condition,
               .got = text.empty() ? "the opposite" : text,
               .where = fmt::format("{}:{}", at.file_name(), at.line()),
               .remedy = "this is a defect of Argosy, please report it"},
              at};
}

}  // namespace argosy
