#include "core/error.hpp"

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
  switch (fault) {
    case Fault::usage:
    case Fault::config:
      return Exit::usage;
    case Fault::data:
      return Exit::data;
    case Fault::io:
    case Fault::corrupt:
      return Exit::io;
    case Fault::comm:
    case Fault::device:
      return Exit::comm;
    case Fault::numeric:
      return Exit::numeric;
    case Fault::internal:
      break;
  }
  return Exit::internal;
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

void throw_broken_invariant(const char* condition, const std::string& text, std::source_location at) {
  throw Error{Fault::internal,
              {.wanted = condition,
               .got = text.empty() ? "the opposite" : text,
               .where = fmt::format("{}:{}", at.file_name(), at.line()),
               .remedy = "this is a defect of Argosy, please report it"},
              at};
}

}  // namespace argosy
