#pragma once

#include <functional>
#include <map>
#include <string>

#include "app.hpp"
#include "soup/check.hpp"
#include "soup/soup.hpp"

/// The command line of apps/soup, shared with the program it becomes when soups are to be validated.
namespace argosy::app {

/// From --validate CONFIG and --set, and --report SET.
using MakeEvaluator = std::function<soup::Evaluator(comm::Context&, const config::Options&, const std::string&)>;

namespace detail {

/// Enumerators by name, as CLI11 wants them.
template <class E>
std::map<std::string, E> names_of() {
  std::map<std::string, E> names;
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<E>>([&](auto e) { names.emplace(e.name, e.value); });
  return names;
}

inline constexpr std::string_view soup_examples =
    "  mpirun apps/soup runs/mt/checkpoints/*                 the mean of all checkpoints of a run, as ./soup\n"
    "  mpirun -n 4 apps/soup --out best a/000009000 a/000010000   of two of them, by 4 ranks\n"
    "  apps/soup --recipe last_k --last 5 --spacing 1000 runs/mt/checkpoints/*   five of them, 1000 steps apart\n"
    "  apps/soup --recipe weighted --weights 1,2 a/000009000 a/000010000         one part and two parts\n"
    "  apps/soup --recipe greedy --validate configs/mt.json runs/mt/checkpoints/*   what lowers the validation loss\n"
    "  mpirun apps/soup --check runs/mt/checkpoints/*         verifies every byte, changes nothing; exit code 4: "
    "damage";

}  // namespace detail

/// The whole tool. `make_evaluator` is asked for when --validate is given.
inline int run_soup(int argc, char** argv, const MakeEvaluator& make_evaluator) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    soup::SoupConfig config;
    soup::Recipe& recipe = config.recipe;
    config::Options validation;
    std::string reported;
    bool check = false;
    CLI::App app{"Averages checkpoints in bounded memory: weights are summed in fp64 and divided once."};
    app.add_option("CKPT", config.inputs, "committed checkpoint directories, at least two")->required();
    app.add_option("--out", config.output, "directory to make; never overwritten")->capture_default_str();
    app.add_option("--dtype", config.dtype, "f32 | bf16: the element type of the soup's weights, rounded once; f32")
        ->transform(CLI::Transformer(std::map<std::string, DType>{{"f32", DType::f32}, {"bf16", DType::bf16}}))
        ->default_str("f32");
    app.add_option(
           "--optimizer", config.moments,
           "drop | zero | first | avg: keep the optimizer's moments, so that training can go on from the soup; drop")
        ->transform(CLI::Transformer(detail::names_of<soup::Moments>()))
        ->default_str("drop");
    app.add_option("--recipe", recipe.type, "uniform | weighted | last_k | decay | greedy")
        ->transform(CLI::Transformer(detail::names_of<soup::RecipeType>()))
        ->default_str("uniform");
    app.add_option("--weights", recipe.weights, "weighted: one number for each checkpoint, as in 1,2,1")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--by", recipe.by, "weighted: by a metric saved with the checkpoints, as in valid.en.loss");
    app.add_flag("!--no-normalize", recipe.normalize, "weighted: do not divide by the sum of the weights");
    app.add_option("--last", recipe.last, "last_k: how many of the newest");
    app.add_option("--spacing", recipe.spacing, "last_k: at least so many steps apart; 0");
    app.add_option("--decay", recipe.decay,
                   "decay: linear | cosine | one_minus_sqrt, the schedule stood in for; linear")
        ->transform(CLI::Transformer(detail::names_of<soup::Decay>()));
    app.add_option("--min-delta", recipe.min_delta,
                   "greedy: take what lowers the validation loss by more than this; 0");
    app.add_option("--bootstrap", recipe.bootstrap,
                   "greedy: or what lowers it in this share of resamplings of the validation batches, as in 0.95");
    CLI::Option* const validate =
        app.add_option("--validate", validation.config,
                       "the run's configuration: judge members and soup on its validation sets (every rank holds the "
                       "model); a soup worse than its best member is not committed, exit code 6");
    app.add_option("--set", validation.assignments, "override a key of that configuration; repeat as needed")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false)
        ->needs(validate);
    app.add_option("--report", reported,
                   "a validation set by name, as in test.en, that decides nothing: its loss is reported")
        ->needs(validate);
    app.add_flag("--ema", config.ema,
                 "average the running means that optimizer.ema keeps, in the place of the weights");
    app.add_flag("--allow-worse", config.allow_worse, "commit it all the same")->needs(validate);
    app.add_flag("--allow-cross-run", config.allow_cross_run, "take checkpoints of several runs");
    app.add_flag("--allow-soup", config.allow_soup, "take soups as ingredients");
    app.add_flag("--check", check,
                 "only verify every byte of the checkpoints, and say which are whole; model.h5, a view that holds no "
                 "weights, is left out")
        ->excludes("--out", "--dtype", "--optimizer", "--recipe", "--validate", "--ema");
    if (!parse(app, argc, argv, detail::soup_examples, context)) return Exit::ok;
    if (check) {
      const double begin_s = context.clock.monotonic_s();
      const auto checked = soup::check_checkpoints(context, config.inputs);
      context.print_result("soup", soup::figures(checked, context.clock.monotonic_s() - begin_s));
      return std::ranges::all_of(checked, [](const auto& one) { return one.wrong.empty(); }) ? Exit::ok : Exit::io;
    }
    soup::Evaluator evaluate;
    if (!validation.config.empty()) evaluate = make_evaluator(context, validation, reported);
    context.print_result("soup", soup::figures(soup::make_soup(context, config, evaluate)));
    return Exit::ok;
  });
}

}  // namespace argosy::app
