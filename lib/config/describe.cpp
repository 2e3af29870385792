#include "config/describe.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace argosy::config {

void Problems::add(std::string_view pointer, std::string_view wanted, std::string_view got, std::string_view remedy) {
  std::string whole = prefix_;
  if (!pointer.empty() && pointer.front() != '/') whole += '/';
  whole += pointer;
  if (!known_.insert(fmt::format("{}\n{}\n{}", whole, wanted, got)).second) return;
  problems_.push_back({std::move(whole), std::string(wanted), std::string(got), std::string(remedy)});
}

void Problems::add_unknown_key(std::string_view key, std::string_view meant, std::string_view remedy) {
  const std::size_t before = problems_.size();
  add(key, meant, key, remedy);
  if (problems_.size() > before) problems_.back().is_unknown_key = true;
}

Problems::Scope::Scope(Problems& problems, std::string_view key)
    : problems_(problems), size_before_(problems.prefix_.size()) {
  if (key.empty() || key.front() != '/') problems.prefix_ += '/';
  problems.prefix_ += key;
}

Problems::Scope::~Scope() { problems_.prefix_.resize(size_before_); }

namespace detail {
namespace {

constexpr std::size_t shown_chars = 60;
constexpr std::size_t listed_problems = 50;  // more are counted

std::string shown(const json::value& value) {
  if (value.is_double() && !std::isfinite(value.get_double())) return "a number that is too large";
  std::string text = text_of(value, false);
  if (text.size() > shown_chars) text = text.substr(0, shown_chars - 3) + "...";
  return text;
}

/// "/optimizer/beta1" as --set spells it: "optimizer.beta1".
std::string dotted(std::string_view pointer) {
  std::string path{pointer.substr(std::min<std::size_t>(1, pointer.size()))};
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

Facts facts_of(const Problems::Problem& problem, const Document& document) {
  const std::string place = document.place(problem.pointer);
  const std::string key = problem.pointer.empty() ? "the configuration" : dotted(problem.pointer);
  const std::string remedy = problem.remedy.empty() ? "" : "; " + problem.remedy;
  return {.sentence = problem.is_unknown_key ? fmt::format("{}: unknown key {}{}", place, key, remedy)
                                             : fmt::format("{}: {} must be {}{}{}{}", place, key, problem.wanted,
                                                           problem.got.empty() ? "" : ", got ", problem.got, remedy),
          .wanted = problem.wanted,
          .got = problem.got,
          .where = problem.pointer.empty() ? place : fmt::format("{} {}", place, key),
          .remedy = problem.remedy};
}

/// Pointers, asked whether one of them is at, above or below a place.
class Pointers {
 public:
  void add(std::string pointer) { pointers_.insert(std::move(pointer)); }
  [[nodiscard]] bool touch(std::string_view place) const {
    for (std::string_view above = place;; above = above.substr(0, std::min(above.rfind('/'), above.size() - 1))) {
      if (pointers_.contains(above)) return true;
      if (above.empty()) break;
    }
    const std::string below = fmt::format("{}/", place);
    const auto next = pointers_.lower_bound(below);
    return next != pointers_.end() && next->starts_with(below);
  }

 private:
  std::set<std::string, std::less<>> pointers_;
};

}  // namespace

std::string_view text_for(std::span<const KeyText> texts, std::string_view key) {
  const auto found = std::find_if(texts.begin(), texts.end(), [key](const KeyText& t) { return t.key == key; });
  return found == texts.end() ? std::string_view{} : found->text;
}

void add_mismatch(Problems& problems, std::string_view wanted, const json::value& got) {
  problems.add("", wanted, shown(got));
}

void add_bad_name(Problems& problems, std::span<const std::string_view> known, const json::value& got) {
  const auto hint = got.is_string() ? nearest(std::string_view{got.get_string()}, known) : std::nullopt;
  problems.add("", fmt::format("one of {}", fmt::join(known, ", ")), shown(got),
               hint ? fmt::format("did you mean {}?", *hint) : "");
}

void add_unknown_key(Problems& problems, std::string_view key, std::span<const std::string_view> known,
                     std::span<const std::string> everywhere) {
  const auto exists = [&](std::string_view path) {
    return std::find(everywhere.begin(), everywhere.end(), path) != everywhere.end();
  };
  if (const auto ours = key_of_peer(key); ours && exists(*ours)) {
    const std::string_view last = ours->substr(ours->rfind('.') + 1);
    return problems.add_unknown_key(
        key, "", last == key ? fmt::format("did you mean {}?", *ours) : fmt::format("Argosy calls it {}", *ours));
  }
  if (const auto hint = nearest(key, known))
    return problems.add_unknown_key(key, *hint, fmt::format("did you mean {}?", dotted(problems.pointer_to(*hint))));
  const auto elsewhere = std::find_if(everywhere.begin(), everywhere.end(), [key](std::string_view path) {
    return path.size() > key.size() && path.ends_with(key) && path[path.size() - key.size() - 1] == '.';
  });
  if (elsewhere != everywhere.end())
    return problems.add_unknown_key(key, "", fmt::format("did you mean {}?", *elsewhere));
  problems.add_unknown_key(key, "", fmt::format("the keys at this place are {}", fmt::join(known, ", ")));
}

void throw_problems(const Document& document, const Problems& first, const Problems& second) {
  std::vector<Problems::Problem> all = first.all();
  Pointers known;
  for (const Problems::Problem& problem : first.all()) {
    // A misspelled key leaves the key that was meant unset, which validation may report as well.
    if (problem.is_unknown_key && !problem.wanted.empty())
      known.add(problem.pointer.substr(0, problem.pointer.rfind('/') + 1) + problem.wanted);
    known.add(problem.pointer);
  }
  for (const Problems::Problem& problem : second.all()) {
    if (!known.touch(problem.pointer)) all.push_back(problem);
  }
  if (all.empty()) return;
  if (all.size() == 1) throw Error{Fault::config, facts_of(all.front(), document)};
  std::string list;
  for (const Problems::Problem& problem : std::span{all}.first(std::min(all.size(), listed_problems)))
    list += fmt::format("\n  {}", Error(Fault::config, facts_of(problem, document)).what());
  if (all.size() > listed_problems) list += fmt::format("\n  and {} more", all.size() - listed_problems);
  throw Error{Fault::config,
              {.sentence = fmt::format("{} has {} problems:{}", document.name(), all.size(), list),
               .wanted = "a valid configuration",
               .got = fmt::format("{} problems", all.size()),
               .where = document.name(),
               .remedy = list}};
}

}  // namespace detail
}  // namespace argosy::config
