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

/// A part of a model, for weights: the matrices with one row per id (and the output's bias), or what else a side has.
enum class ModelPart { embeddings, encoder, decoder };
BOOST_DESCRIBE_ENUM(ModelPart, embeddings, encoder, decoder)

[[nodiscard]] ModelPart part_of(const spec::Parameter& parameter);

struct InitSource {
  std::string from;  // a checkpoint, a soup, or a folder of another program
  std::vector<ModelPart> components{ModelPart::embeddings, ModelPart::encoder, ModelPart::decoder};
  bool allow_new = false;
  bool reinit_positions = false;  // its kind of positions does not count, nor do its tables of them
  [[nodiscard]] bool covers(const spec::Parameter& parameter) const;
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
