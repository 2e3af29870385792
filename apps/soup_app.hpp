#pragma once

#include <functional>
#include <map>
#include <string>

#include "app.hpp"
#include "soup/soup.hpp"

/// The tool soup, for two programs: soup starts without LibTorch, soup_validated has it and evaluates.
namespace argosy::app {

struct SoupCommand {
  SoupCommand();
  SoupCommand(const SoupCommand&) = delete;  // `cli` writes into the members
  SoupCommand& operator=(const SoupCommand&) = delete;

  CLI::App cli{"Averages checkpoints in bounded memory: weights are summed in fp64 and divided once."};
  soup::SoupConfig config;
  config::Options validation;  // --validate and --set
  std::string reported;
  bool check = false;
};

/// From --validate CONFIG and --set, and --report SET.
using MakeEvaluator = std::function<soup::Evaluator(comm::Context&, const config::Options&, const std::string&)>;

namespace detail {

/// Takes an enumerator by its name. Without the description CLI11 would print its number in --help.
template <class E>
void take_names(CLI::Option* option) {
  std::map<std::string, E> names;
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<E>>([&](auto e) { names.emplace(e.name, e.value); });
  option->transform(CLI::Transformer(names).description(""))->type_name("NAME");
}

inline constexpr std::string_view soup_examples =
    "  mpiexec -n 4 apps/soup CKPT…                                      the mean of these checkpoints, as ./soup\n"
    "  mpiexec -n 4 apps/soup --out best CKPT CKPT                       the mean of two, as ./best\n"
    "  apps/soup --recipe last_k --last 5 --spacing 1000 CKPT…           five of them, 1000 steps apart\n"
    "  apps/soup --recipe weighted --weights 1,2 CKPT CKPT               one third and two thirds\n"
    "  apps/soup --recipe greedy --validate configs/mt_base.json CKPT…   those that lower the validation loss\n"
    "  mpiexec -n 4 apps/soup --check CKPT…                              verify every byte, change nothing; exit code "
    "4: damaged\n"
    "CKPT is a checkpoint's folder; CKPT… is, for example, runs/mt_base/train/checkpoints/*";

}  // namespace detail

inline SoupCommand::SoupCommand() {
  soup::Recipe& recipe = config.recipe;
  cli.add_option("CKPT", config.inputs, "directories of at least two committed checkpoints")->required();
  cli.add_option("--out", config.output, "directory to create; never overwritten")->capture_default_str();
  const std::map<std::string, DType> dtypes{{"f32", DType::f32}, {"bf16", DType::bf16}};
  cli.add_option("--dtype", config.dtype, "f32 | bf16: element type of the soup's weights, rounded once")
      ->transform(CLI::Transformer(dtypes).description(""))
      ->type_name("NAME")
      ->default_str("f32");
  detail::take_names<soup::Moments>(
      cli.add_option("--optimizer", config.moments,
                     "optimizer moments in the soup: drop (none) | zero | first (those of the first checkpoint) | avg "
                     "(their mean); training can resume from a soup with moments")
          ->default_str("drop"));
  detail::take_names<soup::RecipeType>(
      cli.add_option("--recipe", recipe.type, "uniform | weighted | last_k | decay | greedy")->default_str("uniform"));
  cli.add_option("--weights", recipe.weights, "weighted: one number for each checkpoint, as in 1,2,1")
      ->delimiter(',')
      ->allow_extra_args(false);
  cli.add_option("--by", recipe.by, "weighted: weights from a metric saved with the checkpoints, as in valid.en.loss");
  cli.add_flag("!--no-normalize", recipe.normalize, "weighted: do not divide by the sum of the weights");
  cli.add_option("--last", recipe.last, "last_k: number of checkpoints, newest first");
  cli.add_option("--spacing", recipe.spacing, "last_k: least number of steps between two checkpoints; default: 0");
  detail::take_names<soup::Decay>(
      cli.add_option("--decay", recipe.decay,
                     "decay: linear | cosine | one_minus_sqrt, the learning-rate decay to imitate; default: linear"));
  cli.add_option("--min-delta", recipe.min_delta,
                 "greedy: take a checkpoint that lowers the validation loss by more than this; default: 0");
  cli.add_option("--bootstrap", recipe.bootstrap,
                 "greedy: also take one that lowers it in at least this share (0 to 1) of bootstrap resamplings of the "
                 "validation batches, such as 0.95");
  CLI::Option* const validate = cli.add_option(
      "--validate", validation.config,
      "the run's configuration: evaluate the checkpoints and the soup on its validation sets, with a whole model per "
      "rank. A soup worse than its best checkpoint is not saved (exit code 6). Needs the program soup_validated");
  cli.add_option("--set", validation.assignments, "set a key of that configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->needs(validate);
  cli.add_option("--report", reported,
                 "exclude one validation set, such as test.en, from all decisions and report the losses on it")
      ->needs(validate);
  cli.add_flag("--ema", config.ema, "average the running means (optimizer.ema) instead of the weights");
  cli.add_flag("--allow-worse", config.allow_worse, "save a soup worse than its best checkpoint")->needs(validate);
  cli.add_flag("--allow-cross-run", config.allow_cross_run, "accept checkpoints of several runs");
  cli.add_flag("--allow-soup", config.allow_soup, "accept soups as inputs");
  cli.add_flag("--check", check,
               "only verify every byte of the checkpoints (except of the view model.h5) and list which are intact")
      ->excludes("--out", "--dtype", "--optimizer", "--recipe", "--validate", "--ema");
}

/// The whole tool. `make_evaluator` is called when --validate is given.
inline int run_soup(int argc, char** argv, const MakeEvaluator& make_evaluator) {
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    SoupCommand command;
    if (!parse(command.cli, argc, argv, detail::soup_examples, context)) return Exit::ok;
    const soup::SoupConfig& config = command.config;
    if (command.check) {
      const double begin_s = context.clock.monotonic_s();
      const auto checked = soup::check_checkpoints(context, config.inputs);
      context.print_result("soup", soup::figures(checked, context.clock.monotonic_s() - begin_s));
      return std::ranges::all_of(checked, [](const auto& one) { return one.wrong.empty(); }) ? Exit::ok : Exit::io;
    }
    soup::Evaluator evaluator;
    if (!command.validation.config.empty()) evaluator = make_evaluator(context, command.validation, command.reported);
    context.print_result("soup", soup::figures(soup::make_soup(context, config, evaluator)));
    return Exit::ok;
  });
}

}  // namespace argosy::app
