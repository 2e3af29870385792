#pragma once

#include <string>
#include <vector>

#include "spec/model_spec.hpp"
#include "train/run_state.hpp"

/// A run that resumes with other tasks than it had: languages added, or directions left out.
namespace argosy::train {

/// "added en-pl, pl-en; removed cs-fr; other groups"; empty: they are the same.
[[nodiscard]] std::string difference_of(const spec::Sharing& was, const spec::Sharing& now);

/// Makes the state of a checkpoint with the tasks `was` one of the model `spec`: each task goes on in its corpus where
/// it stood, a new one at the beginning; components that `spec` does not have are no longer counted. Returns which
/// components are new and which are left out, for the log and the history. Throws Error{config} for new ones that lora
/// would leave at random values.
[[nodiscard]] std::vector<std::string> take_tasks(RunState& state, const spec::Sharing& was,
                                                  const spec::ModelSpec& spec);

}  // namespace argosy::train
