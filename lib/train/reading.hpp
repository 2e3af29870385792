#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "data/loader.hpp"
#include "data/token_shards.hpp"
#include "train/advice.hpp"

/// What a run reads of its corpora, for the log and the result: how they are drawn, how often each has been read, how
/// many examples lost their noise. Borrows the context and the shards.
namespace argosy::train {

class Reading {
 public:
  Reading(const comm::Context& context, const data::TokenShards& shards) : context_(context), shards_(shards) {}

  /// Shares of the corpora and figures of the loader's pool. Warns of an epoch of one step, and of examples left out.
  void announce(const data::Loader& loader, std::int64_t epoch) const;
  /// Their names, where there are several.
  [[nodiscard]] std::vector<std::string> corpora() const;
  /// The batches of one more step. May warn.
  void add(const data::StepBatches& step);
  /// How often each corpus has been read; empty before the first step. Many repeats come before overfitting.
  [[nodiscard]] const std::vector<double>& passes() const noexcept { return passes_; }
  void log_passes() const;
  /// `passes`, `idle_share`, and `without_noise` where transforms draw.
  void add_figures(boost::json::object& figures) const;

 private:
  const comm::Context& context_;
  const data::TokenShards& shards_;
  std::vector<double> passes_;
  NoiseAdvice noise_;
  std::int64_t slots_ = 0, micro_batches_ = 0;  // of all ranks
};

}  // namespace argosy::train
