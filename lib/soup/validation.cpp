#include <algorithm>
#include <bit>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <map>
#include <tuple>
#include <utility>

#include "checkpoint/load.hpp"
#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/hash.hpp"
#include "core/staged.hpp"
#include "soup/output.hpp"

namespace argosy::soup {
namespace {

namespace json = boost::json;
using checkpoint::Reader;

std::string text_of(double number) { return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(number)); }

/// Reads {"KEY": [bits of the loss, bits of each batch's loss …], …}; decimals would not keep the bits. Skips entries
/// that it cannot read.
std::map<std::string, ValidationLoss> losses_in(const std::string& text) {
  std::map<std::string, ValidationLoss> known;
  json::error_code error;
  const json::value root = json::parse(text, error);
  if (error || !root.is_object()) return known;
  for (const auto& member : root.get_object()) {
    std::vector<double> numbers;
    if (!member.value().is_array()) continue;
    for (const json::value& value : member.value().get_array()) {
      if (!value.is_string()) break;
      const auto bits = number_in<std::uint64_t>(value.get_string(), 16);
      if (!bits) break;
      numbers.push_back(std::bit_cast<double>(*bits));
    }
    if (numbers.empty() || numbers.size() != member.value().get_array().size()) continue;
    known.emplace(member.key(), ValidationLoss{numbers.front(), {numbers.begin() + 1, numbers.end()}});
  }
  return known;
}

/// The losses measured so far. All ranks hold the same entries; rank 0 replaces the file after each evaluation.
class Journal {
 public:
  /// Reads the file of an earlier call. A file that cannot be read is ignored. **Collective.**
  Journal(const comm::Context& context, const Path& target, std::string identity)
      : context_(context),
        path_(target.parent_path() / fmt::format(".{}.journal", fitting_name(target.filename().string(), added_bytes))),
        identity_(std::move(identity)) {
    constexpr std::uint64_t limit_bytes = 16ULL << 20;
    std::string text;
    if (context.is_root() && context.files.exists(path_)) {
      try {
        text = context.files.read_text(path_, limit_bytes);
      } catch (const Error& error) {  // costs time, not correctness
        context.log.warn("losses of an earlier call are not used: {}", error.what());
      }
    }
    known_ = losses_in(context.world.broadcast(std::move(text)));
    if (!known_.empty())
      context.log.info("{} holds {} losses of an earlier call; those of the same inputs, sets and ranks are used",
                       path_.string(), known_.size());
  }

  /// The loss of this mean with weights of type `dtype`: the stored one, or else what `evaluate` measures, which is
  /// then stored. **Collective.**
  ValidationLoss loss_of(const Mean& mean, DType dtype, const std::function<ValidationLoss()>& evaluate) {
    const std::string key = key_of(mean, dtype);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    ValidationLoss loss = evaluate();
    known_.emplace(key, loss);
    comm::at_root(context_.world, [&] { write(); });
    return loss;
  }
  /// Removes the file once the soup is committed. **Collective.**
  void remove() {
    comm::at_root(context_.world, [&] { context_.files.remove(path_); });
  }

 private:
  static constexpr std::size_t added_bytes = 9;  // "." and ".journal"

  [[nodiscard]] std::string key_of(const Mean& mean, DType dtype) const {
    Hasher hasher;
    hasher.update(identity_).update(std::string_view{"\0", 1}).update(name_of(dtype));
    // Batches are distributed over the ranks: with another number of ranks their order, and they themselves, may
    // differ.
    hasher.update(fmt::format("of {} ranks", context_.world.size()));
    for (const Reader* const reader : mean.readers) hasher.update(reader->self_digest());
    const Mixture& mixture = mean.mixture;
    hasher.update(std::as_bytes(std::span{mixture.weights})).update(std::as_bytes(std::span{&mixture.divisor, 1}));
    return hasher.digest().hex();
  }
  void write() const {
    json::object document;
    for (const auto& [key, loss] : known_) {
      json::array& numbers = document.emplace(key, json::array{}).first->value().get_array();
      numbers.push_back(json::string(text_of(loss.loss)));
      for (const double of_batch : loss.by_batch) numbers.push_back(json::string(text_of(of_batch)));
    }
    if (!path_.parent_path().empty()) context_.files.make_folders(path_.parent_path());
    context_.files.write_atomically(path_, json::serialize(document));
  }

  const comm::Context& context_;
  Path path_;
  std::string identity_;
  std::map<std::string, ValidationLoss> known_;
};

/// The folder of a temporary soup for the evaluator. Its name says who owns it, so that the next soup removes what a
/// killed process leaves.
class TemporaryFolder {
 public:
  TemporaryFolder(const comm::Context& context, const Path& target) : context_(context) {
    std::string nonce;
    comm::at_root(context.world, [&] { nonce = owned_nonce(Owner::of_this_process(context.files, context.clock)); });
    path_ = StagedFolder{context.files, target, context.world.broadcast(std::move(nonce))}.path();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    if (!context_.is_root()) return;
    try {
      context_.files.remove_tree(path_);
    } catch (const Error& error) {
      context_.log.warn("a temporary soup could not be removed: {}", error.what());
    }
  }
  [[nodiscard]] const Path& path() const { return path_; }

 private:
  const comm::Context& context_;
  Path path_;
};

class Validation {
 public:
  Validation(comm::Context& context, const SoupConfig& config, const Inputs& inputs, const Evaluator& evaluator,
             Output output)
      : context_(context),
        config_(config),
        inputs_(inputs),
        evaluator_(evaluator),
        output_(std::move(output)),
        journal_(context, output_.target, evaluator.identity + (config.ema ? " of ema" : "")) {}

  SoupResult run() {
    std::vector<ValidationLoss> alone;
    Comparison comparison;
    for (const Reader& reader : inputs_.readers) {
      alone.push_back(loss_of_member(alone.size()));
      comparison.losses.emplace_back(reader.directory().string(), alone.back().loss);
    }
    const Mean mean = config_.recipe.type == RecipeType::greedy ? choose(alone) : inputs_.mean();
    const auto best = std::ranges::min_element(
        comparison.losses, [](double a, double b) { return a < b || (b != b && a == a); },  // NaN is the worst
        [](const auto& loss) { return loss.second; });
    const Reader& best_reader = inputs_.readers[static_cast<std::size_t>(best - comparison.losses.begin())];
    std::tie(comparison.best_member, comparison.best_member_loss) = *best;
    comparison.loss = loss_of_mean(mean).loss;
    require_no_worse(comparison);
    if (evaluator_.report) report(mean, best_reader, comparison);
    SoupResult result = write_mean(context_, mean, output_);
    journal_.remove();
    result.comparison = std::move(comparison);
    return result;
  }

 private:
  ValidationLoss loss_of_member(std::size_t member) {
    const Reader& reader = inputs_.readers[member];
    ValidationLoss loss =
        journal_.loss_of(inputs_.mean_of({member}), reader.weights(), [&] { return evaluator_.evaluate(reader); });
    context_.log.info("{}: validation loss {:.6f}", reader.directory().string(), loss.loss);
    return loss;
  }
  /// Writes the mean into a temporary folder next to the output and calls `evaluate` with it.
  template <class Evaluate>
  auto with_temporary(const Mean& mean, const Evaluate& evaluate) {
    const TemporaryFolder folder{context_, output_.target};
    Output output = output_;
    output.target = folder.path();
    output.moments = Moments::drop;  // evaluators read weights only
    static_cast<void>(write_mean(context_, mean, output));
    auto evaluated = evaluate(checkpoint::open_on_all(context_, folder.path()));
    context_.world.barrier("temporary soup evaluated");  // rank 0 removes it; the others may still be reading
    return evaluated;
  }
  ValidationLoss loss_of_mean(const Mean& mean) {
    return journal_.loss_of(mean, output_.dtype, [&] { return with_temporary(mean, evaluator_.evaluate); });
  }
  Mean choose(const std::vector<ValidationLoss>& alone) {
    const Recipe& recipe = config_.recipe;
    const auto accepts = [&](const ValidationLoss& now, const ValidationLoss& with) {
      if (recipe.bootstrap) return bootstrap_wins(now, with) >= *recipe.bootstrap;
      return now.loss - with.loss > recipe.min_delta.value_or(0);
    };
    const GreedyChoice choice = choose_greedily(alone, accepts, [&](const std::vector<std::size_t>& members) {
      return loss_of_mean(inputs_.mean_of(members));
    });
    json::array decisions;
    for (const Decision& decision : choice.decisions) {
      const std::string path = inputs_.readers[decision.candidate].directory().string();
      context_.log.info("{} {}: loss {:.6f} with it", decision.accepted ? "took" : "left out", path, decision.loss);
      decisions.push_back({{"path", path}, {"loss", decision.loss}, {"accepted", decision.accepted}});
    }
    output_.section["decisions"] = std::move(decisions);
    return inputs_.mean_of(choice.members);
  }
  void require_no_worse(const Comparison& comparison) {
    const double loss = comparison.loss, best = comparison.best_member_loss;
    output_.section["validation"] = {{"loss", loss}, {"best_member_loss", best}};
    context_.log.info("the soup has the validation loss {:.6f}; its best checkpoint has {:.6f} ({})", loss, best,
                      comparison.best_member);
    if (loss <= best || config_.allow_worse) return;
    throw_claim(Fault::numeric,
                fmt::format("the soup has the validation loss {:.6f}, {:.6f} more than its best checkpoint ({})", loss,
                            loss - best, comparison.best_member),
                output_.target.string(), "a soup no worse than its best checkpoint",
                fmt::format("{:.6f}, worse by {:.6f}", loss, loss - best),
                "use that checkpoint, try --recipe greedy, or give --allow-worse");
  }
  void report(const Mean& mean, const Reader& best, Comparison& comparison) {
    comparison.reported_best_member_loss = evaluator_.report(best);
    comparison.reported_loss = with_temporary(mean, evaluator_.report);
    output_.section["report"] = {{"loss", *comparison.reported_loss},
                                 {"best_member_loss", *comparison.reported_best_member_loss}};
    context_.log.info("on the set given to --report, the soup has the loss {:.6f}; its best checkpoint has {:.6f}",
                      *comparison.reported_loss, *comparison.reported_best_member_loss);
  }

  comm::Context& context_;
  const SoupConfig& config_;
  const Inputs& inputs_;
  const Evaluator& evaluator_;
  Output output_;
  Journal journal_;
};

}  // namespace

SoupResult write_validated(comm::Context& context, const SoupConfig& config, const Inputs& inputs,
                           const Evaluator& evaluator, Output output) {
  return Validation{context, config, inputs, evaluator, std::move(output)}.run();
}

}  // namespace argosy::soup
