#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

enum class DenoiseObjective { bart, mass };
BOOST_DESCRIBE_ENUM(DenoiseObjective, bart, mass)
enum class MaskedSpan { subword, word, poisson };
BOOST_DESCRIBE_ENUM(MaskedSpan, subword, word, poisson)

/// Makes the source the target, and puts noise in the source, which the model learns to undo.
/// bart (Lewis et al., arXiv:1910.13461), in this order: with probability `permute` shuffles the sentences, which end
/// with . ? or !; masks ceil(words · mask) words, or pieces, in spans; inserts ceil(pieces · insert) masks; with
/// probability `rotate` begins at another piece. Spans do not overlap; with `poisson` their lengths are drawn with mean
/// lambda and the last one is cut, and each of length 0 inserts a mask (at most twice as many as are expected). In the
/// place of a span stand one mask (replace_length 1), nothing (0) or a mask for each piece (-1).
/// mass (Song et al., arXiv:1905.02450): masks ceil(pieces · mask) pieces next to each other; these alone bear loss.
/// A share `random` of all masks is a random piece instead.
struct Denoise {
  static constexpr const char* type = "denoise";
  static constexpr Stage stage = Stage::ids;
  static constexpr bool needs_pairs = true;
  DenoiseObjective objective = DenoiseObjective::bart;
  double permute = 0, rotate = 0, insert = 0, mask = 0, random = 0;
  MaskedSpan span = MaskedSpan::subword;
  double lambda = 3;
  std::int64_t replace_length = 1;
  std::string mask_piece = "<mask>";

  [[nodiscard]] std::vector<std::string> pieces(std::span<const std::string>) const { return {mask_piece}; }
  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(Denoise, (),
                      (objective, permute, rotate, insert, mask, random, span, lambda, replace_length, mask_piece))
std::span<const config::KeyText> key_texts(const Denoise&);
void validate(const Denoise&, config::Problems&);

}  // namespace argosy::data
