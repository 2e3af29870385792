#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "model/stored_model.hpp"
#include "plan/run_config.hpp"

/// The weights that a new run begins with: of existing models (init_from) where they have them, else random ones.
namespace argosy::train {

/// Opens a model by the name that the configuration gives it. **Collective.**
using OpenModel = std::function<model::StoredModel(comm::Context& context, const std::string& name)>;
/// Opens a folder of adapters alone for the adapters of `spec`, which it borrows; null: the name is not that of such a
/// folder. **Collective.**
using OpenAdapters = std::function<std::unique_ptr<const model::WeightSource>(
    comm::Context& context, const std::string& name, const spec::ModelSpec& spec)>;

class InitialWeights {
 public:
  /// Opens the sources and compares them with the model, before anything is read. Borrows `spec`. **Collective.**
  /// Throws Error{config} when a source is another kind of model (every key that differs is named), lacks parameters
  /// (unless allow_new) or has them in other shapes, when embeddings are wanted that belong to another tokenizer, and
  /// when none has what lora freezes; what `open` throws.
  InitialWeights(comm::Context& context, const plan::RunConfig& config, const spec::ModelSpec& spec,
                 const data::Tokenizer& tokenizer, const OpenModel& open, const OpenAdapters& open_adapters);

  /// Elements [begin, end) of a parameter of the model. Not collective. Throws Error{numeric} for NaN and infinity,
  /// Error{corrupt}, Error{io}.
  void fill(const spec::Parameter& parameter, std::int64_t begin, std::int64_t end, float* values) const;

  /// For the log: of each source what was loaded, then what is new.
  [[nodiscard]] const std::vector<std::string>& lines() const noexcept { return lines_; }
  /// For the history of the run.
  [[nodiscard]] std::string summary() const;

 private:
  struct Opened {
    plan::InitSource source;
    std::optional<model::StoredModel> model;  // absent: adapters
    std::unique_ptr<const model::WeightSource> adapters;
  };
  /// Finds the parameters of the model that a source has.
  void match(std::size_t source, const spec::ModelSpec& spec);
  void use_adapters(std::size_t source, const spec::ModelSpec& spec);
  /// What no source has.
  void look_for_new(const plan::RunConfig& config, const spec::ModelSpec& spec);

  std::uint64_t seed_;
  std::vector<Opened> opened_;
  std::map<std::string, std::pair<std::size_t, const spec::Parameter*>> found_;  // by our name: source, its parameter
  std::vector<std::string> lines_;
};

}  // namespace argosy::train
