#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "interchange/formats.hpp"
#include "interchange/model_bin.hpp"
#include "interchange/tensor_file.hpp"

/// Reads a written folder back and compares it with the model that it was written from, before it gets its name
/// (ExportOptions::verify_with). First every tensor, bit for bit, with what the model gives in that type. Then the
/// model that Argosy reads from the folder: every parameter, and a forward pass on fixed ids, bit for bit with those of
/// the model rounded to that type; int8 weights must lie within half a step of the model's as well. Rank 0 runs the
/// passes; the ranks share out the rest, a tensor at a time. FORMAT.md describes it for users.
namespace argosy::interchange {

/// The number of tensors; nullopt if nothing was asked for. **Collective.** Throws Error{corrupt}, which names the file
/// and the first tensor and element that differ, and what the folder's reader throws.
[[nodiscard]] std::optional<std::int64_t> verify_hugging_face(comm::Context& context, const OutputFolder& output,
                                                              const std::vector<Tensor>& tensors,
                                                              const model::StoredModel& model,
                                                              const ExportOptions& options);
[[nodiscard]] std::optional<std::int64_t> verify_ctranslate2(comm::Context& context, const OutputFolder& output,
                                                             const ModelBin& bin, const model::StoredModel& model,
                                                             const ExportOptions& options);
/// For rank 0 alone: not collective. The digests of the checkpoint are checked as well.
[[nodiscard]] std::optional<std::int64_t> verify_checkpoint(comm::Context& context, const Path& made,
                                                            const Path& target, const model::StoredModel& model,
                                                            const ExportOptions& options);

/// Ids that the passes read: all over the vocabulary, as many as the model has positions for, 24 at most.
[[nodiscard]] std::vector<model::Example> fixed_examples(const spec::Architecture& shape);

}  // namespace argosy::interchange
