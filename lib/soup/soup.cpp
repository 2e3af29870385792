#include "soup/soup.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "checkpoint/load.hpp"
#include "core/error.hpp"
#include "core/staged_folder.hpp"
#include "soup/cook.hpp"
#include "soup/greedy.hpp"
#include "soup/ingredients.hpp"
#include "soup/journal.hpp"

namespace argosy::soup {
namespace {

using checkpoint::Reader;

/// A soup that nobody but the evaluator sees: removed when it has been judged. Its name tells whose it is, so that the
/// next soup removes what a killed one leaves.
class Sample {
 public:
  Sample(const comm::Context& context, const Path& target) : context_(context) {
    std::string nonce;
    comm::agree(context.world, [&] {
      if (context.is_root()) nonce = owned_nonce(Owner::of_this_process(context.files, context.clock));
    });
    path_ = StagedFolder{context.files, target, context.world.broadcast(std::move(nonce))}.path();
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;
  ~Sample() {
    if (!context_.is_root()) return;
    try {
      context_.files.remove_tree(path_);
    } catch (const Error& error) {
      context_.log.warn("{}", error.what());
    }
  }
  [[nodiscard]] const Path& path() const { return path_; }

 private:
  const comm::Context& context_;
  Path path_;
};

/// One making of a soup with an evaluator.
class Tasting {
 public:
  Tasting(comm::Context& context, const SoupConfig& config, const Pantry& pantry, const Evaluator& evaluate,
          Order order)
      : context_(context),
        config_(config),
        pantry_(pantry),
        evaluate_(evaluate),
        order_(std::move(order)),
        journal_(context, order_.target, evaluate.identity + (config.ema ? " of ema" : "")) {}

  Cooked run(Verdict& verdict) {
    std::vector<Judgement> alone;
    std::vector<double> losses;
    for (std::size_t i = 0; i < pantry_.readers.size(); ++i) {
      alone.push_back(judge_one(i));
      losses.push_back(alone.back().loss);
    }
    Ingredients ingredients = pantry_.ingredients();
    if (config_.recipe.type == RecipeType::greedy) ingredients = choose(alone);
    const auto best =
        static_cast<std::size_t>(std::ranges::min_element(losses,
                                                          [](double a, double b) {
                                                            return a < b || (b != b && a == a);  // NaN is the worst
                                                          }) -
                                 losses.begin());
    verdict = {.best_member_loss = losses[best], .best_member = pantry_.readers[best].directory().string()};
    for (std::size_t i = 0; i < losses.size(); ++i)
      verdict.losses.emplace_back(pantry_.readers[i].directory().string(), losses[i]);

    const auto check = [&](double loss) {
      verdict.loss = loss;
      order_.section["validation"] = {{"loss", loss}, {"best_member_loss", verdict.best_member_loss}};
      context_.log.info("validation loss {:.6f}; the best member has {:.6f} ({})", loss, verdict.best_member_loss,
                        verdict.best_member);
      if (loss <= verdict.best_member_loss || config_.allow_worse) return;
      throw Error{Fault::numeric,
                  {.wanted = fmt::format("a soup no worse than its best member, loss {:.6f} of {}",
                                         verdict.best_member_loss, verdict.best_member),
                   .got = fmt::format("{:.6f}, worse by {:.6f}", loss, loss - verdict.best_member_loss),
                   .where = order_.target.string(),
                   .remedy = "use that member, try --recipe greedy, or say --allow-worse"}};
    };
    check(judge_sample(ingredients).loss);
    if (evaluate_.report) report(ingredients, pantry_.readers[best], verdict);
    const Cooked cooked = cook(context_, ingredients, order_);
    journal_.finish();
    return cooked;
  }

 private:
  Judgement judge_one(std::size_t member) {
    const Reader& reader = pantry_.readers[member];
    Judgement judgement =
        journal_.judgement_of(pantry_.mean_of({member}), reader.weights(), [&] { return evaluate_.judge(reader); });
    context_.log.info("{}: validation loss {:.6f}", reader.directory().string(), judgement.loss);
    return judgement;
  }
  /// Makes the soup beside its final place for as long as `look` takes.
  template <class Look>
  auto with_sample(const Ingredients& ingredients, const Look& look) {
    const Sample sample{context_, order_.target};
    Order order = order_;
    order.target = sample.path();
    order.moments = Moments::drop;  // nobody judges them
    static_cast<void>(cook(context_, ingredients, order));
    auto seen = look(checkpoint::open_on_all(context_, sample.path()));
    context_.world.barrier("sample judged");  // rank 0 removes it, the others may still be reading
    return seen;
  }
  Judgement judge_sample(const Ingredients& ingredients) {
    return journal_.judgement_of(ingredients, order_.dtype, [&] { return with_sample(ingredients, evaluate_.judge); });
  }
  Ingredients choose(const std::vector<Judgement>& alone) {
    const Recipe& recipe = config_.recipe;
    const auto accepts = [&](const Judgement& now, const Judgement& with) {
      if (recipe.bootstrap) return bootstrap_wins(now, with) >= *recipe.bootstrap;
      return now.loss - with.loss > recipe.min_delta.value_or(0);
    };
    const GreedyChoice choice = choose_greedily(alone, accepts, [&](const std::vector<std::size_t>& members) {
      return judge_sample(pantry_.mean_of(members));
    });
    boost::json::array decisions;
    for (const Decision& decision : choice.decisions) {
      const std::string path = pantry_.readers[decision.candidate].directory().string();
      context_.log.info("{} {}: {:.6f} with it", decision.accepted ? "took" : "left out", path, decision.loss);
      decisions.push_back({{"path", path}, {"loss", decision.loss}, {"accepted", decision.accepted}});
    }
    order_.section["decisions"] = std::move(decisions);
    return pantry_.mean_of(choice.members);
  }
  void report(const Ingredients& ingredients, const Reader& best, Verdict& verdict) {
    verdict.reported_best_member_loss = evaluate_.report(best);
    verdict.reported_loss = with_sample(ingredients, evaluate_.report);
    order_.section["report"] = {{"loss", *verdict.reported_loss},
                                {"best_member_loss", *verdict.reported_best_member_loss}};
    context_.log.info("on sets that decided nothing: loss {:.6f}; the best member has {:.6f}", *verdict.reported_loss,
                      *verdict.reported_best_member_loss);
  }

  comm::Context& context_;
  const SoupConfig& config_;
  const Pantry& pantry_;
  const Evaluator& evaluate_;
  Order order_;
  Journal journal_;
};

}  // namespace

SoupReport make_soup(comm::Context& context, const SoupConfig& config, const Evaluator& evaluate) {
  const double begin_s = context.clock.monotonic_s();
  Path target = Path{config.output}.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  comm::agree(context.world, [&] {
    if (config.recipe.type == RecipeType::greedy && !evaluate) {
      throw Error{Fault::usage,
                  {.wanted = "validation sets to choose by",
                   .got = "none",
                   .where = "the recipe greedy",
                   .remedy = "name the run's configuration with --validate"}};
    }
    if (config.moments != Moments::drop && config.dtype != DType::f32) {
      throw Error{Fault::usage,
                  {.wanted = "weights in f32 beside optimizer state",
                   .got = std::string(name_of(config.dtype)),
                   .where = "the command line",
                   .remedy = "leave --dtype or --optimizer out"}};
    }
    if (!context.is_root() || !context.files.is_taken(target)) return;
    throw Error{Fault::usage,
                {.wanted = "a new directory for the soup",
                 .got = "one that exists",
                 .where = target.string(),
                 .remedy = "remove it, or name another with --out"}};
  });
  const Pantry pantry = open_ingredients(context, config);
  for (const std::string& line : table_of(pantry)) context.log.plain(line);

  SoupReport report{
      .output = target, .recipe = name_of(config.recipe.type), .inputs = pantry.readers.size(), .dtype = config.dtype};
  Order order{.target = target,
              .shard_bytes = config.shard_bytes,
              .dtype = config.dtype,
              .moments = config.moments,
              .section = {{"recipe", name_of(config.recipe.type)}}};
  if (config.ema) order.section["of"] = "ema";
  Cooked cooked;
  if (evaluate) {
    cooked = Tasting{context, config, pantry, evaluate, order}.run(report.verdict.emplace());
  } else {
    cooked = cook(context, pantry.ingredients(), order);
  }
  report.inputs = cooked.members;
  report.parameters = cooked.parameters;
  report.shards = cooked.shards;
  report.bytes_read = cooked.bytes_read;
  report.bytes_written = cooked.bytes_written;
  report.seconds = context.clock.monotonic_s() - begin_s;
  return report;
}

boost::json::object figures(const SoupReport& report) {
  const double giga = 1e9, seconds = std::max(report.seconds, 1e-9);
  boost::json::object figures{
      {"output", report.output.string()}, {"recipe", report.recipe},
      {"inputs", report.inputs},          {"parameters", report.parameters},
      {"shards", report.shards},          {"dtype", name_of(report.dtype)},
      {"bytes_read", report.bytes_read},  {"bytes_written", report.bytes_written},
      {"seconds", report.seconds},        {"input_gb_per_s", static_cast<double>(report.bytes_read) / giga / seconds}};
  if (report.verdict) {
    figures["loss"] = report.verdict->loss;
    figures["best_member_loss"] = report.verdict->best_member_loss;
    figures["best_member"] = report.verdict->best_member;
    boost::json::array losses;
    for (const auto& [path, loss] : report.verdict->losses) losses.push_back({{"path", path}, {"loss", loss}});
    figures["losses"] = std::move(losses);
    if (report.verdict->reported_loss) {
      figures["reported_loss"] = *report.verdict->reported_loss;
      figures["reported_best_member_loss"] = *report.verdict->reported_best_member_loss;
    }
  }
  return figures;
}

}  // namespace argosy::soup
