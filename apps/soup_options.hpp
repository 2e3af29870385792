#pragma once

#include <map>
#include <string>

#include "app.hpp"
#include "names.hpp"
#include "soup/soup.hpp"

/// The command line of the tool soup.
namespace argosy::app {

struct SoupCommand {
  SoupCommand();
  SoupCommand(const SoupCommand&) = delete;  // `cli` writes into the members
  SoupCommand& operator=(const SoupCommand&) = delete;

  /// Whether something runs the model, which needs LibTorch.
  [[nodiscard]] bool runs_the_model() const { return !validation.config.empty(); }

  CLI::App cli{"Averages checkpoints in bounded memory: weights are summed in fp64 and divided once."};
  soup::SoupConfig config;
  config::Options validation;  // --validate and --set
  std::string reported;
  bool check = false;
};

inline SoupCommand::SoupCommand() {
  soup::Recipe& recipe = config.recipe;
  cli.add_option("CKPT", config.inputs, "directories of at least two committed checkpoints")->required();
  cli.add_option("--out", config.output, "directory to create; never overwritten")->capture_default_str();
  const std::map<std::string, DType> dtypes{{"f32", DType::f32}, {"bf16", DType::bf16}};
  cli.add_option("--dtype", config.dtype, "f32 | bf16: element type of the soup's weights, rounded once")
      ->transform(CLI::Transformer(dtypes).description(""))
      ->type_name("NAME")
      ->default_str("f32");
  take_names<soup::Moments>(
      cli.add_option("--optimizer", config.moments,
                     "optimizer moments in the soup: drop (none) | zero | first (those of the first checkpoint) | avg "
                     "(their mean); training can resume from a soup with moments")
          ->default_str("drop"));
  take_names<soup::RecipeType>(
      cli.add_option("--recipe", recipe.type,
                     "which checkpoints are averaged, and with which weights: uniform (all, equal weights) | weighted "
                     "(all, by --weights or --by) | last_k (the newest --last) | decay (all, as if the learning rate "
                     "had decayed) | greedy (those that lower the validation loss)")
          ->default_str("uniform"));
  cli.add_option("--weights", recipe.weights, "weighted: one number for each checkpoint, as in 1,2,1")
      ->delimiter(',')
      ->allow_extra_args(false);
  cli.add_option("--by", recipe.by, "weighted: weights from a metric saved with the checkpoints, as in valid.en.loss");
  cli.add_flag_callback(
      "--no-normalize", [&recipe] { recipe.normalize = false; }, "weighted: do not divide by the sum of the weights");
  cli.add_option("--last", recipe.last, "last_k: number of checkpoints, newest first");
  cli.add_option("--spacing", recipe.spacing, "last_k: least number of steps between two checkpoints; default: 0");
  take_names<soup::Decay>(
      cli.add_option("--decay", recipe.decay,
                     "decay: linear | cosine | one_minus_sqrt, the learning-rate decay to imitate; default: linear"));
  cli.add_option("--min-delta", recipe.min_delta,
                 "greedy: take a checkpoint that lowers the validation loss by more than this; default: 0");
  cli.add_option(
      "--bootstrap", recipe.bootstrap,
      "greedy: take a checkpoint that lowers the validation loss in at least this share (from 0.5 to below 1) of 1000 "
      "bootstrap resamplings of the validation batches, such as 0.95; cannot be combined with --min-delta");
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
  cli.add_flag(
      "--components", config.components,
      "checkpoints may have different tasks (models with model.encoder.stacks): each component is the mean over "
      "those that have it, with their weights divided by the sum of these, and the soup has all tasks");
  cli.add_flag("--allow-worse", config.allow_worse, "save a soup worse than its best checkpoint")->needs(validate);
  cli.add_flag("--allow-cross-run", config.allow_cross_run, "accept checkpoints of several runs");
  cli.add_flag("--allow-soup", config.allow_soup, "accept soups as inputs");
  cli.add_flag("--check", check,
               "only verify every byte of the checkpoints and list which are intact; model.h5, which holds no weights, "
               "is not read")
      ->excludes("--out", "--dtype", "--optimizer", "--recipe", "--validate", "--ema", "--components");
}

}  // namespace argosy::app
