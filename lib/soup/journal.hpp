#pragma once

#include <functional>
#include <map>
#include <string>

#include "soup/greedy.hpp"
#include "soup/ingredients.hpp"

/// Judgements of mixtures, made once: kept in a JSON file beside the output (`.<name>.journal`) that is replaced after
/// each evaluation, so that a tasting that was cut short goes on where it was. An entry counts for exactly those
/// ingredients, weights, that evaluator and number of ranks. All ranks hold the same entries; rank 0 touches the file.
namespace argosy::soup {

class Journal {
 public:
  /// Reads what an earlier tasting left; a file that cannot be read is as good as none. **Collective.**
  Journal(const comm::Context& context, const Path& target, std::string identity);

  /// The judgement of this mixture in weights of type `dtype`: as known, or as `evaluate` says, which is recorded.
  /// **Collective.**
  Judgement judgement_of(const Ingredients& ingredients, DType dtype, const std::function<Judgement()>& evaluate);
  /// The soup is committed: removes the file. **Collective.**
  void finish();

 private:
  [[nodiscard]] std::string key_of(const Ingredients& ingredients, DType dtype) const;
  void write() const;

  const comm::Context& context_;
  Path path_;
  std::string identity_;
  std::map<std::string, Judgement> known_;
};

}  // namespace argosy::soup
