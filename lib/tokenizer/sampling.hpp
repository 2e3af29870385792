#pragma once

#include <cstdint>

/// How a text is cut into pieces by chance, so that a model sees each word in several spellings.
namespace argosy::tokenizer {

struct Sampling {
  /// Unigram models draw a segmentation with p ∝ exp(alpha · score) (Kudo, arXiv:1804.10959). BPE passes over each
  /// merge that it comes to with this probability (BPE-dropout: Provilkov et al., arXiv:1910.13267).
  double alpha = 0;
  std::int64_t best = -1;  // unigram: draw among this many best segmentations, at least 1; -1: among all
};

}  // namespace argosy::tokenizer
