#pragma once

#include <boost/json/object.hpp>
#include <cstdint>

#include "comm/run_main.hpp"
#include "plan/run_config.hpp"

/// `train --probe-memory`: measures which batch.micro_size a run can afford. Steps are real ones, with rows as long as
/// the model allows and ids that are made up. Neither the run directory nor the data are touched.
namespace argosy::train {

/// Takes steps with growing micro-batches, and stops before a size that is forecast not to fit: so the probe itself
/// does not run out of memory. Prints measured and forecast bytes of each size, and returns those of the largest that
/// leaves 10 % of a rank's memory free. vocab_live: pieces of the tokenizer.
/// **Collective.** Throws Error{config} if not even the smallest size fits, or if the memory is unknown.
[[nodiscard]] boost::json::object probe_memory(comm::Context& context, const plan::RunConfig& config,
                                               std::int64_t vocab_live);

}  // namespace argosy::train
