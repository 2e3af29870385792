#pragma once

#include <boost/describe.hpp>
#include <boost/json/value.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.hpp"
#include "core/file.hpp"
#include "spec/model_spec.hpp"

/// The key `init_from`: existing models whose weights a new run begins with.
namespace argosy::plan {

struct InitSource {
  std::string from;  // a checkpoint, a soup, or a folder of another program
  std::vector<std::string> components{"embeddings", "encoder", "decoder"};  // as spec::is_of
  bool allow_new = false;
  bool reinit_positions = false;  // its kind of positions does not count, nor do its tables of them
  [[nodiscard]] bool covers(const spec::Parameter& parameter) const;
  /// Whether some of its components are of this part: embeddings, encoder or decoder.
  [[nodiscard]] bool has(std::string_view part) const;
};
BOOST_DESCRIBE_STRUCT(InitSource, (), (from, components, allow_new, reinit_positions))
std::span<const config::KeyText> key_texts(const InitSource&);
void validate(const InitSource&, config::Problems&);

/// A folder, an InitSource, or a list of InitSources, of which a later one goes before an earlier one.
struct InitFrom {
  std::vector<InitSource> sources;
  /// Throws Error{config} on anything else.
  [[nodiscard]] static InitFrom parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static boost::json::value schema();
};

/// What lora.train_embeddings `auto` stands for: whether the embeddings of these models are still to be learned, as
/// none of them gives any, or pieces have been added to the vocabulary of one (vocab_map.json). Throws Error{corrupt}.
[[nodiscard]] bool has_new_embeddings(const Files& files, const InitFrom& from);

}  // namespace argosy::plan
