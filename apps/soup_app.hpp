#pragma once

#include <functional>
#include <string>

#include "soup_options.hpp"

/// The tool soup, for two programs: soup starts without LibTorch, soup_validated has it and evaluates.
namespace argosy::app {

/// From --validate CONFIG and --set, and --report SET.
using MakeEvaluator = std::function<soup::Evaluator(comm::Context&, const config::Options&, const std::string&)>;

namespace detail {

inline constexpr std::string_view soup_examples =
    "  mpiexec -n 4 apps/soup CKPT…                                      the mean of these checkpoints, as ./soup\n"
    "  mpiexec -n 4 apps/soup --out best CKPT CKPT                       the mean of two, as ./best\n"
    "  apps/soup --recipe last_k --last 5 --spacing 1000 CKPT…           five of them, 1000 steps apart\n"
    "  apps/soup --recipe weighted --weights 1,2 CKPT CKPT               one third and two thirds\n"
    "  apps/soup --recipe greedy --validate configs/mt_base.json CKPT…   those that lower the validation loss\n"
    "  apps/soup --components --allow-cross-run CKPT CKPT                of models with different tasks, one of all "
    "tasks\n"
    "  mpiexec -n 4 apps/soup --check CKPT…                              verify every byte, change nothing; exit code "
    "4: damaged\n"
    "CKPT is a checkpoint's folder; CKPT… is, for example, runs/mt_base/train/checkpoints/*";

}  // namespace detail

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
