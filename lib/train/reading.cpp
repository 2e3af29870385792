#include "train/reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace argosy::train {

void Reading::announce(const data::Loader& loader, std::int64_t epoch) const {
  const std::vector<data::TokenShards::Corpus>& corpora = shards_.corpora();
  for (std::size_t c = 0; c < corpora.size(); ++c)
    context_.log.info("corpus {}: {} examples, {:.1f} % of those drawn", corpora[c].name, corpora[c].size,
                      100 * loader.shares()[c]);
  const data::PoolSource::Report& pool = loader.report();
  context_.log.info(
      "epoch {}, of {} pools: {} steps, {} examples in this one; micro-batches are {:.1f} % full, and {:.1f} % of "
      "target positions hold tokens",
      epoch, loader.pools_in_epoch(), pool.steps, pool.examples, 100 * pool.fill, 100 * pool.target_efficiency);
  if (loader.pools_in_epoch() == 1 && pool.steps == 1)
    context_.log.warn(
        "an epoch is one step: the corpora have no more examples than batch.global_size takes, and the rest of the "
        "step is empty; lower batch.global_size, or give more text");
  if (pool.oversized > 0)
    context_.log.warn("{} examples of this pool are left out, because each is larger than batch.micro_size",
                      pool.oversized);
}

std::vector<std::string> Reading::corpora() const {
  std::vector<std::string> names;
  if (shards_.corpora().size() > 1)
    std::ranges::transform(shards_.corpora(), std::back_inserter(names), &data::TokenShards::Corpus::name);
  return names;
}

void Reading::add(const data::StepBatches& step) {
  passes_ = step.passes;
  for (const std::vector<int>& slot : step.dealt) {
    slots_ += std::ssize(slot);
    for (const int number : slot)
      micro_batches_ += number >= 0 && step.routes[static_cast<std::size_t>(number)] >= 0 ? 1 : 0;
  }
  const std::string advice = noise_.on_batches(step.batches);
  if (context_.is_root() && !advice.empty()) context_.log.warn("{}", advice);
}

void Reading::log_passes() const {
  std::string text;
  for (std::size_t c = 0; c < passes_.size(); ++c)
    text += fmt::format("{}{} {:.2f} times", c == 0 ? "" : ", ", shards_.corpora()[c].name, passes_[c]);
  if (noise_.share_without() > 0)
    text += fmt::format("; {:.2f} % of the examples without noise", 100 * noise_.share_without());
  context_.log.info("corpora read so far: {}", text);
}

void Reading::add_figures(boost::json::object& figures) const {
  if (!passes_.empty()) {
    boost::json::object& passes = figures["passes"].emplace_object();
    for (std::size_t c = 0; c < passes_.size(); ++c) passes[shards_.corpora()[c].name] = passes_[c];
  }
  if (slots_ > 0) figures["idle_share"] = 1 - static_cast<double>(micro_batches_) / static_cast<double>(slots_);
  if (!shards_.is_exact()) figures["without_noise"] = noise_.share_without();
}

}  // namespace argosy::train
