#pragma once

#include <string>

#include "comm/run_main.hpp"
#include "model/stored_model.hpp"

/// Opens a model by the name that a user gives it: a committed checkpoint, a soup, or a folder of another program.
namespace argosy::interchange {

/// Recognises the kind by the folder's content. "hf:DIR" accepts a Hugging Face folder alone. ema: the running means in
/// place of the weights. **Collective.** Throws Error{usage} for `ema` without running means, and as
/// checkpoint::open_on_all(), model::stored_model(), hugging_face_model() and ctranslate2_model().
[[nodiscard]] model::StoredModel open_source(comm::Context& context, const std::string& name, bool ema = false);

}  // namespace argosy::interchange
