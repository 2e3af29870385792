#include "soup/soup.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "soup/components.hpp"
#include "soup/output.hpp"

namespace argosy::soup {

namespace {

/// Refuses what --components cannot be combined with.
void require_fitting(const SoupConfig& config, bool evaluates) {
  const auto refuse = [](const char* option, const char* why) {
    throw_claim(Fault::usage, fmt::format("--components cannot be combined with {}: {}", option, why), "--components",
                fmt::format("no {}", option), option, fmt::format("leave {} or --components out", option));
  };
  if (evaluates) refuse("--validate", "no checkpoint has all parts of the model to compare with");
  if (config.moments != Moments::drop) refuse("--optimizer", "training resumes with the tasks of one run");
  if (!config.recipe.normalize) refuse("--no-normalize", "components are means over different numbers of checkpoints");
}

}  // namespace

SoupResult make_soup(comm::Context& context, const SoupConfig& config, const Evaluator& evaluator) {
  const double begin_s = context.clock.monotonic_s();
  Path target = Path{config.output}.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  comm::agree(context.world, [&] {
    if (config.recipe.type == RecipeType::greedy && !evaluator)
      throw_claim(Fault::usage, "the recipe greedy needs validation sets", "the recipe greedy", "validation sets",
                  "none", "give the run's configuration with --validate");
    if (config.moments != Moments::drop && config.dtype != DType::f32)
      throw_claim(Fault::usage, fmt::format("--optimizer needs weights in f32, not {}", name_of(config.dtype)),
                  "--optimizer", "weights in f32", std::string(name_of(config.dtype)),
                  "leave --dtype or --optimizer out");
    if (config.components) require_fitting(config, static_cast<bool>(evaluator));
    if (!context.is_root() || !context.files.is_taken(target)) return;
    throw_claim(Fault::usage, target.string() + " exists already", target.string(), "a new directory for the soup",
                "one that exists", "remove it, or give another directory with --out");
  });
  const Inputs inputs = open_inputs(context, config);
  for (const std::string& line : table_of(inputs)) context.log.plain(line);

  if (inputs.whole) {
    for (const auto& [component, owners] : partial_components(inputs.mean()))
      context.log.info("{}: the mean over {} of {} checkpoints", component, owners.size(), inputs.readers.size());
  }

  const std::string recipe = name_of(config.recipe.type);
  Output output{.target = target,
                .shard_bytes = config.shard_bytes,
                .dtype = config.dtype,
                .moments = config.moments,
                .section = {{"recipe", recipe}}};
  if (config.ema) output.section["of"] = "ema";
  SoupResult result = evaluator ? write_validated(context, config, inputs, evaluator, output)
                                : write_mean(context, inputs.mean(), output);
  result.recipe = recipe;
  result.seconds = context.clock.monotonic_s() - begin_s;
  return result;
}

boost::json::object figures(const SoupResult& result) {
  const double giga = 1e9, seconds = std::max(result.seconds, 1e-9);
  boost::json::object figures{
      {"output", result.output.string()}, {"recipe", result.recipe},
      {"inputs", result.inputs},          {"parameters", result.parameters},
      {"shards", result.shards},          {"dtype", name_of(result.dtype)},
      {"bytes_read", result.bytes_read},  {"bytes_written", result.bytes_written},
      {"seconds", result.seconds},        {"input_gb_per_s", static_cast<double>(result.bytes_read) / giga / seconds}};
  if (const auto& comparison = result.comparison) {
    figures["loss"] = comparison->loss;
    figures["best_member_loss"] = comparison->best_member_loss;
    figures["best_member"] = comparison->best_member;
    boost::json::array losses;
    for (const auto& [path, loss] : comparison->losses) losses.push_back({{"path", path}, {"loss", loss}});
    figures["losses"] = std::move(losses);
    if (comparison->reported_loss) {
      figures["reported_loss"] = *comparison->reported_loss;
      figures["reported_best_member_loss"] = *comparison->reported_best_member_loss;
    }
  }
  return figures;
}

}  // namespace argosy::soup
