#pragma once

#include <fmt/format.h>

#include <boost/describe.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"

/// Strict JSON ↔ described structs. A configuration is a plain struct with defaults, described by
/// BOOST_DESCRIBE_STRUCT; its members may be nested structs, vectors, optionals, enums (spelled as the identifier) and
/// Period. A struct may define two functions, found by argument-dependent lookup:
/// - std::span<const config::KeyText> key_texts(const T&): one text per key, for the schema and documentation; a test
///   requires it;
/// - void validate(const T&, config::Problems&): checks ranges and combinations, and adds all problems.
/// Both are called for every struct of the tree, with pointers relative to that struct ("/beta1"). An unknown key is an
/// error that gives file, line and the closest known key. The struct that is read may define `void expand(T&)`, which
/// is called last and replaces what is written for short by what it stands for, and `void set_defaults(T&, const
/// boost::json::value& root)`, which is called first and may replace defaults by what the document, unchecked, asks
/// for. // and /* */ comments and trailing commas are allowed. Uses neither LibTorch nor MPI, so that a configuration
/// can be validated on a login node.
namespace argosy::config {

struct KeyText {
  std::string_view key, text;
};

/// A count of steps, tgt_tokens or epochs. As text, k, M and G multiply; u means steps, t tgt_tokens and e epochs: 500,
/// "300ku", "2M t", "1.5e".
struct Period {
  enum class Unit { step, tgt_token, epoch };
  double count = 0;
  Unit unit = Unit::step;
  auto operator<=>(const Period&) const = default;
  /// Throws Error{config} on bad text.
  [[nodiscard]] static Period parse(std::string_view text);
  [[nodiscard]] std::string text() const;
};

/// One string or a list of them. One is written without brackets.
struct StringOrList {
  std::vector<std::string> items{};
  StringOrList() = default;
  StringOrList(std::string one) : items{std::move(one)} {}
  StringOrList(const char* one) : items{one} {}
  StringOrList(const Path& one) : items{one.string()} {}
  StringOrList(std::vector<std::string> all) : items(std::move(all)) {}
  bool operator==(const StringOrList&) const = default;
};

/// A number that may also be "auto": what reads it then decides. It may be absent as well.
template <class T>
struct OrAuto : std::optional<T> {
  OrAuto() = default;
  OrAuto(T number) : std::optional<T>(number) {}
  OrAuto(std::optional<T> number) : std::optional<T>(number) {}
  bool is_auto = false;
};

/// One of several described structs, selected by the key "type"; without it, the first. Each struct names itself by
/// `static constexpr const char* type`. Its keys are next to "type".
template <class... Ts>
struct Tagged {
  std::variant<Ts...> value{};
};

/// Collects all problems of a configuration before an error is thrown. A problem's place is a JSON pointer
/// ("/optimizer/beta1").
class Problems {
 public:
  /// Adds a problem, unless the same one is already known at that place.
  /// wanted: what follows "must be".
  void add(std::string_view pointer, std::string_view wanted, std::string_view got, std::string_view remedy = {});
  /// A key that its object does not have. meant: the key of the same object it may be a misspelling of, or empty.
  void add_unknown_key(std::string_view key, std::string_view meant, std::string_view remedy);
  /// Of a key of the object in scope.
  [[nodiscard]] std::string pointer_to(std::string_view key) const { return fmt::format("{}/{}", prefix_, key); }
  /// Adds a problem unless the condition holds.
  void require(bool condition, std::string_view pointer, std::string_view wanted, std::string_view got,
               std::string_view remedy = "") {
    if (!condition) add(pointer, wanted, got, remedy);
  }
  /// The same for a number.
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void require(bool condition, std::string_view pointer, std::string_view wanted, Number got) {
    require(condition, pointer, wanted, fmt::format("{}", static_cast<double>(got)));
  }
  /// While it lives, problems that are added get `key` in front of their pointer.
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
    bool is_unknown_key = false;
  };
  [[nodiscard]] const std::vector<Problem>& all() const noexcept { return problems_; }

 private:
  std::vector<Problem> problems_;
  std::unordered_set<std::string> known_;  // pointer, wanted and got of each
  std::string prefix_;
};

/// Text of a configuration file. Throws Error{usage} if the file does not exist.
[[nodiscard]] std::string read_source(const Files& files, const Path& path);

/// A parsed document that knows the file and line of each key.
class Document {
 public:
  /// name: of the file. Throws Error{config} with file and line on a syntax error or a repeated key.
  static Document parse(std::string_view text, std::string_view name);
  /// Applies `--set a.b=c`: c is JSON if it parses as JSON, else a string. Elements of lists are a.0.b; the index after
  /// the last appends one. Throws Error{usage}.
  void set(std::string_view assignment);
  [[nodiscard]] const boost::json::value& root() const noexcept { return root_; }
  /// "mt.json:12" for the value at a JSON pointer, or "--set".
  [[nodiscard]] std::string place(std::string_view pointer) const;
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Where a key or an element is; parts by key or index. A tree, since pointers as texts would repeat long keys.
  struct Place {
    int line = 0;  // 0: the whole document; -1: from --set
    std::map<std::string, Place, std::less<>> parts{};
  };

 private:
  boost::json::value root_;
  std::string name_;
  Place places_;
};

// For any described struct. Defined in config/describe.hpp, for the one .cpp file that instantiates them for a struct.
// Members may be bool, integers, floating point, std::string, Path, described enums and structs, std::optional (null or
// "auto": absent), OrAuto, StringOrList, std::vector, std::map<std::string, …>, and any type that is spelled as text
// like Period
// (`static T parse(std::string_view)` throwing Error, `std::string text() const`).

/// The defaults of T overlaid with the document. Throws Error{config} listing every unknown key, wrong type and failed
/// validate() with file and line.
template <class T>
[[nodiscard]] T from_document(const Document& document);

/// The effective configuration with all keys; absent optionals are null.
template <class T>
[[nodiscard]] boost::json::value to_json(const T& value);

/// JSON Schema 2020-12 of T, with key texts and defaults.
template <class T>
[[nodiscard]] boost::json::value schema_of();

/// Dotted paths of all keys ("optimizer.beta1"), without the indices of lists and the names in maps.
template <class T>
[[nodiscard]] std::vector<std::string> keys_of();

/// Keys without a text in key_texts(); tests require that there are none.
template <class T>
[[nodiscard]] std::vector<std::string> keys_without_text();

/// Digest of the canonical JSON: equal for files with the same meaning.
template <class T>
[[nodiscard]] Digest digest_of_config(const T& value);

/// Canonical text: sorted keys, shortest round-trip numbers, two-space indent when `pretty`.
[[nodiscard]] std::string text_of(const boost::json::value& value, bool pretty = true);

/// The closest name in `known` to a misspelled `word`, at an edit distance of at most a third of its length; or the key
/// for a name that other trainers use.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, std::span<const std::string_view> known);

/// Argosy's key for a name that Fast-LLM or MAMMOTH uses: "clip_grad" → "optimizer.max_grad_norm".
[[nodiscard]] std::optional<std::string_view> key_of_peer(std::string_view name);

/// The options of all tools with a configuration: CONFIG, --set, --print-config, --print-schema. Independent of the
/// command-line library, to which apps/app.hpp binds them.
struct Options {
  Path config{};                              // CONFIG
  std::vector<std::string> assignments{};     // --set a.b=c, in order
  std::optional<std::string> print_config{};  // JSON pointer or dotted path; empty: everything
  bool raw = false;                           // print a string without quotes and escapes
  bool print_schema = false;
};

/// The part of `whole` at a JSON pointer ("/batch/unit") or dotted path ("batch.unit"); all of it for an empty path.
/// Throws Error{usage} naming the first key that does not exist.
[[nodiscard]] const boost::json::value& part_of(const boost::json::value& whole, std::string_view path);

/// A part as --print-config prints it. Throws Error{usage} if `raw` is set and the part is not a string.
[[nodiscard]] std::string printed(const boost::json::value& part, bool raw);

/// What --print-schema or --print-config prints on stdout; nullopt if neither was given.
template <class T>
[[nodiscard]] std::optional<std::string> requested_text(const Options& options, const T& value) {
  if (options.print_schema) return text_of(schema_of<T>());
  if (options.print_config) return printed(part_of(to_json(value), *options.print_config), options.raw);
  return std::nullopt;
}

/// The document with the assignments applied, read into a T. Throws as Document::parse, Document::set and from_document
/// do.
template <class T>
[[nodiscard]] T from_document(Document document, const Options& options) {
  for (const std::string& assignment : options.assignments) document.set(assignment);
  return from_document<T>(document);
}

}  // namespace argosy::config
