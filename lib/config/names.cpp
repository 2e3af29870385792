#include <algorithm>
#include <numeric>
#include <utility>

#include "config/config.hpp"

namespace argosy::config {
namespace {

/// Their names and ours.
constexpr std::pair<std::string_view, std::string_view> peers[] = {
    // Fast-LLM
    {"batch_size", "batch.global_size"},
    {"sequence_length", "batch.sequence_length"},
    {"micro_batch_size", "batch.micro_size"},
    {"train_iters", "schedule.length"},
    {"weight_decay", "optimizer.weight_decay"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"clip_grad", "optimizer.max_grad_norm"},
    {"lr", "schedule.lr"},
    {"lr_warmup_iters", "schedule.warmup"},
    {"lr_decay_style", "schedule.style"},
    {"lr_decay_iters", "schedule.decay_end"},
    {"min_lr", "schedule.min_lr"},
    {"data_path", "data.corpora"},
    {"split", "data.split"},
    {"tokenizer", "data.tokenizer"},
    {"num_workers", "data.workers"},
    {"training_dtype", "precision.mode"},
    {"zero_stage", "sharding.zero_stage"},
    {"mlp_recompute_level", "sharding.recompute"},
    {"experiment_dir", "run_dir"},
    {"validation_iters", "validation.steps"},
    {"validation_interval", "validation.interval"},
    {"max_checkpoints", "checkpoint.max_checkpoints"},
    {"checkpoint_interval", "checkpoint.interval"},
    {"export_interval", "checkpoint.export_interval"},
    {"log_interval", "telemetry.log_interval"},
    {"log_offset", "telemetry.log_offset"},
    {"wandb_entity_name", "telemetry.wandb.entity"},
    {"wandb_project_name", "telemetry.wandb.project"},
    {"wandb_group_name", "telemetry.wandb.group"},
    {"experiment_name", "telemetry.wandb.name"},
    // MAMMOTH
    {"batch_type", "batch.unit"},
    {"accum_count", "batch.accumulation"},
    {"lookahead_minibatches", "batch.pool"},
    {"decay_method", "schedule.style"},
    {"warmup_steps", "schedule.warmup"},
    {"train_steps", "schedule.length"},
    {"heads", "model.heads"},
    {"rotary_pos_emb", "model.encoder.position"},
    {"tie_embedding", "model.tie_embeddings"},
};

/// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours cost one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last.back();
}

}  // namespace

std::optional<std::string_view> key_of_peer(std::string_view name) {
  for (const auto& [theirs, ours] : peers) {
    if (theirs == name) return ours;
  }
  return std::nullopt;
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string_view> known) {
  if (const auto ours = key_of_peer(word)) {
    const std::string_view last = ours->substr(ours->rfind('.') + 1);
    if (std::find(known.begin(), known.end(), last) != known.end()) return std::string(last);
  }
  const std::size_t limit = std::max<std::size_t>(1, word.size() / 3);
  std::size_t best = limit + 1;
  std::optional<std::string> result;
  for (const std::string_view candidate : known) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    if (longer - std::min(word.size(), candidate.size()) >= best) continue;  // so many letters must come or go at least
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    result = std::string(candidate);
  }
  return result;
}

}  // namespace argosy::config
