#pragma once

#include <memory>
#include <string>

#include "comm/run_main.hpp"
#include "model/stored_model.hpp"

/// Opens a model by the name that a user gives it: a committed checkpoint, a soup, or a folder of another program.
namespace argosy::interchange {

/// Recognises the kind by the folder's content. "hf:DIR" accepts a Hugging Face folder alone. ema: the running means in
/// place of the weights. task: as model::stored_model() takes it. **Collective.** Throws Error{usage} for `ema` without
/// running means and for a task of another program's folder, and as checkpoint::open_on_all(), model::stored_model(),
/// hugging_face_model() and ctranslate2_model().
[[nodiscard]] model::StoredModel open_source(comm::Context& context, const std::string& name, bool ema = false,
                                             const std::string& task = {});

/// The same; of a checkpoint of a model of several tasks, all of it, to train from.
[[nodiscard]] model::StoredModel open_whole_source(comm::Context& context, const std::string& name);

/// The adapters of a folder in peft's format, for those of `spec`, which it borrows; null: another folder.
/// **Collective.** Throws as peft_adapters().
[[nodiscard]] std::unique_ptr<const model::WeightSource> open_adapters(comm::Context& context, const std::string& name,
                                                                       const spec::ModelSpec& spec);

}  // namespace argosy::interchange
