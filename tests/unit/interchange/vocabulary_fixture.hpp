#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "interchange/vocabulary.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {

inline const spec::Parameter& parameter_of(const spec::ModelSpec& spec, const std::string& name) {
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& parameter : unit.parameters)
      if (parameter.name == name) return parameter;
  }
  throw_error(Fault::internal, name, "a parameter", "none");
}

/// Stands in for a forward pass without LibTorch: the sum of the embeddings of what each position has read.
inline std::vector<model::Outputs> add_embeddings(const spec::ModelSpec& spec, const model::WeightSource& weights,
                                                  std::span<const model::Example> examples) {
  const spec::Architecture& shape = spec.architecture;
  const spec::Parameter& table = parameter_of(spec, "decoder/embeddings/weight");
  const auto width = static_cast<std::size_t>(shape.width);
  std::vector<model::Outputs> outputs;
  for (const model::Example& example : examples) {
    model::Outputs& output = outputs.emplace_back();
    std::vector<float> sum(width), row(width);
    const auto read = [&](std::int64_t id) {
      weights.read(table, id * shape.width, row);
      for (std::size_t c = 0; c < width; ++c) sum[c] += row[c];
    };
    for (const std::int32_t id : example.source) read(id);
    read(shape.vocabulary.start);
    for (const std::int32_t id : example.target) {
      output.hidden.insert(output.hidden.end(), sum.begin(), sum.end());
      read(id);
    }
  }
  return outputs;
}

/// Models whose vocabulary is changed, and what they were and are.
class VocabularyFixture : public test::ExportFixture {
 protected:
  VocabularyFixture() {
    translation.max_positions = language.max_positions = 100;
    const test::Verses verses = test::verses(700);
    write_lines("some", {verses.english.begin(), verses.english.begin() + 15});
    write_lines("other", {verses.english.begin() + 600, verses.english.end()});
  }
  void write_lines(const std::string& name, const std::vector<std::string>& lines) {
    files.write_atomically(folder / name, test::joined(lines));
  }
  /// A model whose weights are those of a checkpoint with 300 pieces, whatever tokenizer it has.
  model::StoredModel opened(const spec::ModelConfig& config) {
    const checkpoint::Reader reader{files, save(config)};
    return model::stored_model(std::make_unique<checkpoint::Reader>(files, reader.directory()));
  }
  ChangedVocabulary trim(const model::StoredModel& model, const std::string& file, std::int64_t min_count = 1) {
    return trim_vocabulary(context.get(), model, {folder / file}, min_count, add_embeddings);
  }
  ChangedVocabulary extend(const model::StoredModel& model, const std::vector<std::string>& pieces) {
    write_lines("pieces", pieces);
    return extend_vocabulary(context.get(), model, folder / "pieces", {folder / "some"}, add_embeddings);
  }
  static std::vector<float> row(const model::StoredModel& model, const std::string& name, std::int64_t id) {
    const spec::Parameter& parameter = parameter_of(model.spec, name);
    const std::int64_t columns = parameter.numel() / parameter.shape.front();
    std::vector<float> values(static_cast<std::size_t>(columns));
    model.weights->read(parameter, id * columns, values);
    return values;
  }
  static std::vector<std::string> spelled(const data::Tokenizer& tokenizer, const std::string& text) {
    std::vector<std::string> pieces;
    for (const std::int32_t id : tokenizer.encode(text)) pieces.push_back(tokenizer.piece(id));
    return pieces;
  }
  std::vector<std::string> lines(const std::string& file) const {
    std::vector<std::string> all;
    std::istringstream text{files.read_text(folder / file)};
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }

  Files files = Files::system();
};

}  // namespace argosy::interchange
