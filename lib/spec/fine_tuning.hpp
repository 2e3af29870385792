#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "spec/model_spec.hpp"

/// Training a part of a model: parameters that are frozen, and adapters next to frozen matrices (LoRA,
/// arXiv:2106.09685), y = W·x + scale·B·(A·dropout(x)). Where a matrix stacks several, each has adapters of its own. A
/// frozen parameter costs no gradients, state or reductions. Torch-free.
namespace argosy::spec {

/// The section `lora`.
struct LoraConfig {
  std::optional<std::int64_t> rank = 64;  // "auto": the largest that fits
  std::optional<double> alpha{};          // the rank; with rslora 16
  bool rslora = false;                    // arXiv:2312.03732
  double dropout = 0;                     // of what A reads, in training
  config::StringOrList targets{"all_linear"};
  std::optional<bool> train_embeddings{};  // "auto": plan::has_new_embeddings
  bool operator==(const LoraConfig&) const = default;
};
BOOST_DESCRIBE_STRUCT(LoraConfig, (), (rank, alpha, rslora, dropout, targets, train_embeddings))
std::span<const config::KeyText> key_texts(const LoraConfig&);
void validate(const LoraConfig&, config::Problems&);

/// The ranks that "auto" tries, and the largest that may be set.
inline constexpr std::int64_t adapter_ranks[] = {512, 256, 128, 64, 32, 16};
inline constexpr std::int64_t most_adapter_rank = 1 << 14;

/// What B·(A·x) is multiplied by: alpha/rank, with rslora alpha/√rank. The rank is known.
[[nodiscard]] double adapter_scale(const LoraConfig& config);

/// Freezes all parameters but adapters, which it adds, and with train_embeddings (auto: not) the matrices by id. The
/// rank is known.
/// Throws Error{config} for a target that matches no linear layer of a block.
[[nodiscard]] ModelSpec with_adapters(ModelSpec spec, const LoraConfig& config);

/// Freezes the parameters whose names match a pattern of the shell; "x" also matches the end of a name, after a "/".
/// Throws Error{config} for a pattern that matches nothing, and if nothing is left to train.
[[nodiscard]] ModelSpec with_frozen(ModelSpec spec, std::span<const std::string> patterns);

/// The parameters that a rank trains, and all of them.
struct TrainedCount {
  std::int64_t trained = 0, all = 0;
};
[[nodiscard]] TrainedCount trained_count(const ModelSpec& spec);

/// Names of the adapters of a matrix "<layer>/weight".
struct AdapterNames {
  std::string down, up;  // A, B
};
[[nodiscard]] std::optional<AdapterNames> adapter_names(std::string_view weight);

/// A part of a matrix that has adapters: its rows, and the rows of A and B that are for it.
struct AdapterPart {
  std::int64_t begin = 0, rows = 0;  // of the matrix
  std::int64_t down = 0, rank = 0;   // first row of A, and number
  std::int64_t up = 0;               // first row of B
};
/// Of the matrix with these parts, A and B.
[[nodiscard]] std::vector<AdapterPart> adapter_parts(const Parameter& matrix, const Parameter& down,
                                                     const Parameter& up);

}  // namespace argosy::spec
