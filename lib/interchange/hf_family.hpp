#pragma once

#include <boost/describe/enum.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/model_spec.hpp"

/// The families of Hugging Face models, and the tensors of each: one table for export and import (FORMAT.md).
namespace argosy::interchange {

/// Spelled as config.json's model_type. Language models stand before translation models: translates() relies on it.
enum class Family { llama, mistral, qwen2, marian, pegasus, m2m_100, t5 };
BOOST_DESCRIBE_ENUM(Family, llama, mistral, qwen2, marian, pegasus, m2m_100, t5)

/// The family that a model is exported as.
[[nodiscard]] Family family_of(const spec::Architecture& shape);
/// Whether it is an encoder-decoder.
[[nodiscard]] bool translates(Family family);
[[nodiscard]] const char* class_of(Family family);
/// Whether its output has a bias, in which dead ids can be said.
[[nodiscard]] bool has_output_bias(Family family);
/// How many rows of a matrix with one row per id its folders have.
[[nodiscard]] std::int64_t vocabulary_rows(const spec::Vocabulary& vocabulary, Family family);

/// A tensor of theirs: rows of a parameter of ours. The elements of a row have the same order on both sides.
struct Mapped {
  std::string name;
  const spec::Parameter* parameter;
  std::int64_t begin, rows;

  [[nodiscard]] std::int64_t columns() const { return parameter->numel() / parameter->shape.front(); }
  [[nodiscard]] std::vector<std::int64_t> shape() const;
};

/// All tensors of a model, in its order. Borrows the parameters of `spec`.
[[nodiscard]] std::vector<Mapped> mapped_tensors(const spec::ModelSpec& spec, Family family);

/// Names under which a folder may hold a tied matrix, the usual one first.
[[nodiscard]] std::vector<std::string> names_of_tied_matrix(Family family);

/// The name of the table of positions of a side, which Pegasus wants and Marian may have.
[[nodiscard]] std::string name_of_positions(bool encoder);
/// Whether its folders may have tables of positions.
[[nodiscard]] bool has_positions(Family family);

}  // namespace argosy::interchange
