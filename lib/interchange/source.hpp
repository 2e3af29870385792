#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "comm/run_main.hpp"
#include "model/stored_model.hpp"

/// Opens a model by the name that a user gives it: a committed checkpoint, a soup, or a folder of another program.
namespace argosy::interchange {

struct Source {
  std::unique_ptr<checkpoint::Reader> reader;  // of a checkpoint or soup; the model borrows it
  model::StoredModel model;
};

/// Recognises the kind by the folder's content. "hf:DIR" accepts a Hugging Face folder alone. ema: the running means in
/// place of the weights. **Collective.** Throws Error{usage} for `ema` without running means, and as
/// checkpoint::open_on_all(), model::stored_model() and hugging_face_model().
[[nodiscard]] Source open_source(comm::Context& context, const std::string& name, bool ema = false);

}  // namespace argosy::interchange
