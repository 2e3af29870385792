#pragma once

#include <boost/describe.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"

/// Strict JSON ↔ described structs. A configuration is a plain struct with defaults, described by
/// BOOST_DESCRIBE_STRUCT; nested structs, vectors, optionals, enums (spelled as the identifier) and Period are
/// understood. Each struct may bring, found by ADL:
///   std::span<const config::KeyText> key_texts(const T&);   one text a key, for --help, schema and docs (a test
///   demands it) void validate(const T&, config::Problems&);             ranges and combinations, all problems at once
/// Both are called for every struct of the tree, each with pointers relative to itself ("/beta1"): members are not
/// validated by hand. Unknown keys are refused with file:line and the nearest known name; // and /* */ comments and
/// trailing commas are allowed. No torch, no MPI: a configuration is validated on a login node.
namespace argosy::config {

struct KeyText {
  std::string_view key, text;
};

/// A count of steps, or with a suffix: k/M/G multiply, u steps, t tgt_tokens, e epochs ("300ku", "2M t", 500).
struct Period {
  enum class Unit { step, tgt_token, epoch };
  double count = 0;
  Unit unit = Unit::step;
  auto operator<=>(const Period&) const = default;
  /// Throws Error{config} on bad text.
  [[nodiscard]] static Period parse(std::string_view text);
  [[nodiscard]] std::string text() const;
};

/// Collects everything that is wrong before anybody throws. A problem's place is a JSON pointer ("/optimizer/beta1").
class Problems {
 public:
  /// A second problem at the same place is kept only if its text differs.
  void add(std::string_view pointer, std::string_view wanted, std::string_view got, std::string_view remedy = {});
  /// Adds a problem unless the condition holds.
  void require(bool condition, std::string_view pointer, std::string_view wanted, std::string_view got) {
    if (!condition) add(pointer, wanted, got);
  }
  /// Nested validation: problems added while it lives get `key` in front of their pointer.
  class Scope {
   public:
    Scope(Problems& problems, std::string_view key);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Problems& problems_;
    std::size_t size_before_;
  };
  struct Problem {
    std::string pointer, wanted, got, remedy;
  };
  [[nodiscard]] const std::vector<Problem>& all() const noexcept { return problems_; }

 private:
  std::vector<Problem> problems_;
  std::unordered_set<std::string> known_;  // pointer, wanted and got of each
  std::string prefix_;
};

/// Text of a configuration file. Throws Error{usage} when it is missing.
[[nodiscard]] std::string read_source(const Files& files, const Path& path);

/// A parsed document that still knows in which file and line each key stood.
class Document {
 public:
  /// Throws Error{usage} when the file is missing, Error{config} with file:line on a syntax error.
  static Document read(const Files& files, const Path& path);
  static Document parse(std::string_view text, std::string_view name);
  /// `--set a.b=c`: c is JSON if it parses as JSON, else a string; array elements as a.0.b. Applied in order.
  void set(std::string_view assignment);
  [[nodiscard]] const boost::json::value& root() const noexcept { return root_; }
  /// "mt.json:12" for a JSON pointer, or the command line.
  [[nodiscard]] std::string place(std::string_view pointer) const;
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Where a key or an element stood; parts by key or index. A tree, since pointers as texts would repeat long keys.
  struct Place {
    int line = 0;  // 0: the whole document; -1: from --set
    std::map<std::string, Place, std::less<>> parts{};
  };

 private:
  boost::json::value root_;
  std::string name_;
  Place places_;
};

// Implemented as templates in config/describe.hpp (include it in .cpp files only):
//   template <class T> T from_document(const Document&);          defaults + document, unknown keys refused, validate()
//   called;
//                                                                  throws Error{config} that lists all problems
//   template <class T> boost::json::value to_json(const T&);      the effective configuration, every key
//   template <class T> boost::json::value schema_of();            JSON Schema 2020-12 with the key texts
//   template <class T> std::vector<std::string> keys_of();        dotted paths of all keys ("optimizer.beta1")
//   template <class T> std::vector<std::string> keys_without_text();
//   template <class T> Digest digest_of_config(const T&);         of the canonical JSON
// and of any sub-struct. Members may be bool, integers, floating point, std::string, Path, described enums and structs,
// std::optional (null or "auto": absent), std::vector, std::map<std::string, …>, and any type spelled as text like
// Period
// (`static T parse(std::string_view)` throwing Error, `std::string text() const`).

/// Canonical text: sorted keys, shortest round-trip numbers, two-space indent when `pretty`.
[[nodiscard]] std::string text_of(const boost::json::value& value, bool pretty = true);

/// The spelling in `known` nearest to `word` (edit distance ≤ 1/3 of its length, peers' names known), if any.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, std::span<const std::string_view> known);

/// Our key for a name that Fast-LLM or MAMMOTH uses ("clip_grad" → "optimizer.max_grad_norm"), if it is one.
[[nodiscard]] std::optional<std::string_view> key_of_peer(std::string_view name);

}  // namespace argosy::config
