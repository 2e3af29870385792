#pragma once

#include <cstdint>
#include <span>

/// Rules about the logits of one hypothesis: which ids may come next, and which one does. The logits are those of the
/// live ids; -inf excludes an id.
namespace argosy::decode {

/// Changes the logit z of each id in `ids`, once: z > 0 becomes z / penalty, others z · penalty (Keskar et al., 2019).
void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> ids, float penalty);

/// Excludes the ids that would make `ids` end with n ids that stand in it already; n > 0 (Paulus et al., 2018).
void forbid_repeated_ngrams(std::span<float> logits, std::span<const std::int32_t> ids, std::int64_t n);

struct DrawOptions {
  double temperature = 1.0;  // > 0
  std::int64_t top_k = 0;    // 0: all ids
  double top_p = 1.0;        // in (0, 1]; 1: all ids
};

struct Draw {
  std::int64_t id = 0;
  float log_p = 0;  // of the id in softmax(logits)
};

/// An id from the distribution that the options make of the logits (see SearchOptions). uniform: in [0, 1). The id is a
/// function of the arguments. One NaN among the logits gives log_p = NaN.
[[nodiscard]] Draw draw(std::span<const float> logits, const DrawOptions& options, double uniform);

}  // namespace argosy::decode
