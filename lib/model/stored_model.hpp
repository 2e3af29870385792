#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "data/tokenizer.hpp"
#include "spec/fine_tuning.hpp"

/// A model that exists, without LibTorch: of a checkpoint, a soup, or the folder of another program (interchange).
/// Export, decoding and training from existing weights start from it. Of a model whose tasks share parts of it
/// (spec/sharing.hpp), it is what one task computes, which is a plain model.
namespace argosy::model {

/// Reads weights by the names of a specification. One thread.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Reads elements [begin, begin + to.size()) of a parameter, in row-major order. Throws Error{corrupt}, Error{io}.
  virtual void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const = 0;
};

struct StoredAdapters {
  spec::LoraConfig config;
  spec::ModelSpec spec;  // of the model with them
};

/// A model as it computes: adapters are merged into their matrices. `weights` has them as well.
struct StoredModel {
  spec::ModelConfig config;
  spec::ModelSpec spec;
  data::Tokenizer tokenizer;
  std::unique_ptr<const WeightSource> weights;
  std::string where;      // the folder, for messages
  std::string id;         // 32 hex digits: of the run, or of the weights where there is no run
  std::int64_t step = 0;  // of the checkpoint
  std::optional<StoredAdapters> adapters{};
  std::string task{};                                 // of a model that has several
  std::vector<checkpoint::Attachment> attachments{};  // that exports of the model contain as well
  DType trained_in = DType::f32;  // what forward passes had in training, or the weights of a folder have
};

/// Throws an error where the model has one matrix of embeddings for texts of different tokenizers, or where these end
/// texts by different pieces. where: in the message.
void require_embeddings(Fault fault, const data::Tokenizer& tokenizer, const spec::Architecture& shape,
                        const std::string& where);

/// Borrows the reader. task: which one of a model whose tasks share parts of it, as spec::task_named() takes it; empty:
/// the model has no tasks. Not collective. Throws Error{data} if the checkpoint has no model configuration or no
/// tokenizer, Error{corrupt} if these do not fit the stored parameters, and Error{usage} if there must be a task and is
/// none, if there must be none, or if the model does not have what this one needs.
[[nodiscard]] StoredModel stored_model(const checkpoint::Reader& reader, const std::string& task = {});
/// The same; the model owns the reader.
[[nodiscard]] StoredModel stored_model(std::unique_ptr<const checkpoint::Reader> reader, const std::string& task = {});
/// The model of all its tasks, to train from or to evaluate. Borrows the reader. Throws as stored_model().
[[nodiscard]] StoredModel whole_model(const checkpoint::Reader& reader);
/// The same; the model owns the reader.
[[nodiscard]] StoredModel whole_model(std::unique_ptr<const checkpoint::Reader> reader);

}  // namespace argosy::model
