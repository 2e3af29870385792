#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.hpp"

/// Steps that an example takes on its way from a line of text to the ids of a micro-batch, in the order of
/// `data.corpora.transforms`. Each has a file of its own: its configuration, a described struct with the name it is
/// configured by (data_config.hpp lists them), and what it does. pipeline.hpp applies them.
namespace argosy::data {

class Tokenizer;

/// A pair, or a document of a language model, which has no source.
struct Example {
  std::string source_text, target_text;      // until it is tokenized
  std::vector<std::int32_t> source, target;  // from then on, without EOS
  /// Whether each byte of target_text, and from then on each id of target, bears loss. Empty: all do.
  std::vector<bool> loss;
  /// Lines before it in its document, nearest last: as many as Transform::lines_before asks for, fewer at its begin.
  struct Lines {
    std::string source, target;
  };
  std::vector<Lines> before;
};

/// Numbers of ids of both sides; source 0: a language model.
struct Lengths {
  std::uint32_t source = 0, target = 0;
  bool operator==(const Lengths&) const = default;
};

/// Where a transform stands: those on text come before the one that tokenizes, and those on ids after it. Where none is
/// listed that tokenizes, the best segmentation is taken between the two.
enum class Stage { text, tokenize, ids };

class Transform {
 public:
  Transform() = default;
  Transform(const Transform&) = delete;
  Transform& operator=(const Transform&) = delete;
  virtual ~Transform() = default;

  /// The name it is configured by. What it leaves out is counted under it.
  [[nodiscard]] virtual std::string_view type() const = 0;
  /// Text of all that decides what it does: part of the digest of a token shard.
  [[nodiscard]] virtual std::string recipe() const = 0;
  [[nodiscard]] virtual Stage stage() const = 0;
  /// Whether it draws random numbers. Such a transform is applied while training, in every epoch anew, and leaves
  /// nothing out; the others are applied once, by preprocess.
  [[nodiscard]] virtual bool is_random() const { return false; }
  /// Whether all it does is to leave examples out.
  [[nodiscard]] virtual bool is_filter() const { return false; }
  /// The most ids that an example may have afterwards. lengths: what it has before if the transform draws; else what it
  /// has if the transform changes its lengths as much as it does without chance before it. plain: the example as it is
  /// then without chance; of transforms up to the one that tokenizes, as it is after that one.
  [[nodiscard]] virtual Lengths longest(Lengths lengths, const Example& /*plain*/) const { return lengths; }
  /// Of one on text that draws: whether lengths are planned by what a few draws make of each example (Pipeline::plan),
  /// and longest() adds nothing to it.
  [[nodiscard]] virtual bool is_planned_by_draws() const { return false; }
  /// How many lines before the example it reads.
  [[nodiscard]] virtual std::int64_t lines_before() const { return 0; }
  /// Changes the example. False: it is left out. Without random numbers (in validation, and where lengths are planned)
  /// a transform that draws does what it does most plainly: it takes the best segmentation, adds no noise, leaves out
  /// no prefix.
  [[nodiscard]] virtual bool apply(Example& example, RandomStream* random) const = 0;
  /// Of an example as apply() receives it and leaves it out: what is wrong with it, for people.
  [[nodiscard]] virtual std::string fault_of(const Example&) const { return {}; }
};

using Transforms = std::vector<std::unique_ptr<const Transform>>;

/// What transforms are made with. Borrowed for their life.
struct Materials {
  const Tokenizer& tokenizer;
  std::span<const std::string> languages;  // of the corpus: source and target
};

/// What the random numbers of an example depend on, besides the transform's place in the list: the same on any number
/// of ranks and after a resume.
struct Draw {
  std::uint64_t seed = 0, epoch = 0, example = 0;
};

}  // namespace argosy::data
