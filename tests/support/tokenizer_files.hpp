#pragma once

#include <boost/json.hpp>
#include <cstdlib>
#include <string>
#include <utility>

#include "core/file.hpp"
#include "tokenizer/pipeline.hpp"

/// Small files of each kind, which the fuzz target starts from as well: tests/fuzz/corpus/tokenizer.
namespace argosy::test {

/// The JSON text, and a line for it. ARGOSY_SOURCE_DIR is set by ctest.
inline std::pair<std::string, std::string> small_file(const std::string& name) {
  const char* source = std::getenv("ARGOSY_SOURCE_DIR");
  const std::string both =
      Files::system().read_text(Path{source != nullptr ? source : "."} / "tests/fuzz/corpus/tokenizer" / name);
  const std::size_t cut = both.find('\0');
  return {both.substr(0, cut), both.substr(cut + 1)};
}

inline tokenizer::Pipeline small_pipeline(const std::string& name) {
  return tokenizer::Pipeline::load(small_file(name).first, name);
}

/// Sets what a JSON pointer leads to: a key, which may be new, or an element that is there.
inline void set(boost::json::value& whole, const std::string& pointer, const boost::json::value& to) {
  const std::size_t cut = pointer.rfind('/');
  boost::json::value& parent = whole.at_pointer(pointer.substr(0, cut));
  std::string key = pointer.substr(cut + 1);
  for (std::size_t at = key.find("~1"); at != key.npos; at = key.find("~1")) key.replace(at, 2, "/");
  if (parent.is_object())
    parent.get_object()[key] = to;
  else
    parent.as_array().at(std::stoul(key)) = to;
}

/// The pipeline of a small file with other values at JSON pointers.
inline tokenizer::Pipeline changed(const std::string& name,
                                   std::initializer_list<std::pair<const char*, boost::json::value>> changes) {
  boost::json::value whole = boost::json::parse(small_file(name).first);
  for (const auto& [pointer, value] : changes) set(whole, pointer, value);
  return tokenizer::Pipeline::load(boost::json::serialize(whole), name);
}

}  // namespace argosy::test
