#pragma once

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "interchange/hf_import.hpp"
#include "support/refusal.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {

/// Exports toys as Hugging Face folders, changes these, and reads them.
class HfImport : public test::ExportFixture {
 protected:
  HfImport() {
    pegasus = untied = translation;
    pegasus.norm_position = spec::NormPosition::pre;
    untied.tie_embeddings = false;
    untied_pegasus = pegasus;
    untied_pegasus.tie_embeddings = false;
    llama = language;
    llama.window.reset();
    llama.head_size.reset();
    tied_llama = llama;
    tied_llama.tie_embeddings = true;
  }
  std::vector<float> values(const model::StoredModel& model, const spec::Parameter& parameter) {
    std::vector<float> all(static_cast<std::size_t>(parameter.numel()));
    model.weights->read(parameter, 0, all);
    return all;
  }
  /// A tensor file's text with one piece replaced by another of the same length.
  void edit(const std::string& name, const std::string& from, const std::string& to) {
    std::string text = read(name);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ASSERT_EQ(from.size(), to.size());
    text.replace(at, from.size(), to);
    Files::system().write_atomically(out / name, text);
  }
  void configure(const std::string& key, const boost::json::value& value) {
    boost::json::value config = boost::json::parse(read("config.json"));
    config.as_object()[key] = value;
    Files::system().write_atomically(out / "config.json", boost::json::serialize(config));
  }
  std::string refused(Fault fault) {
    return test::refusal(fault, [&] { (void)hugging_face_model(Files::system(), out); });
  }
  /// What is said of an exported model of which one key of config.json has changed.
  std::string unlike(const spec::ModelConfig& config, const std::string& key, const boost::json::value& value,
                     Fault fault = Fault::usage) {
    write("hf", config);
    configure(key, value);
    return refused(fault);
  }

  spec::ModelConfig pegasus, untied, untied_pegasus, llama, tied_llama;
};

}  // namespace argosy::interchange
