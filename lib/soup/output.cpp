#include "soup/output.hpp"

#include <algorithm>
#include <boost/json/value_from.hpp>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "checkpoint/write.hpp"
#include "config/describe.hpp"
#include "core/error.hpp"
#include "soup/averager.hpp"
#include "soup/components.hpp"

namespace argosy::soup {
namespace {

using checkpoint::Manifest;
using checkpoint::Reader;

/// The sections with which training continues: those of the newest member, without its metrics.
checkpoint::Sections training_sections(const Mean& mean, const Output& output) {
  const Reader* newest = mean.readers.front();
  for (const Reader* const reader : mean.readers)
    if (reader->step() >= newest->step()) newest = reader;
  checkpoint::Sections sections = newest->sections();
  sections.metrics = {};
  // The optimizer's step belongs to its moments: it corrects the bias of moments that began at zero.
  if (output.moments == Moments::zero) sections.optimizer["step"] = 0;
  if (output.moments == Moments::zero) sections.optimizer.erase("component_steps");
  if (output.moments == Moments::first) {
    const boost::json::object& first = mean.readers.front()->sections().optimizer;
    for (const char* const key : {"step", "component_steps"})
      if (first.contains(key)) sections.optimizer[key] = first.at(key);
  }
  sections.history.push_back(boost::json::object{
      {"step", newest->step()}, {"change", fmt::format("weights: the mean of {} checkpoints", mean.readers.size())}});
  return sections;
}

/// The tensors of each unit in the mean: the weights and, if complete, those of the optimizer.
std::vector<spec::StateTensor> tensors_of(const Mean& mean, bool complete) {
  std::vector<spec::StateTensor> tensors{{std::string(spec::weights_tensor)}};
  if (!complete) return tensors;
  for (const Reader* const reader : mean.readers) {
    if (!reader->has_optimizer_state()) continue;
    tensors = reader->tensors(0);
    std::erase(tensors, spec::StateTensor{std::string(spec::mean_tensor)});
    return tensors;
  }
  // Checkpoints without optimizer state do not name its tensors.
  for (const std::string_view moment : spec::adam_moments) tensors.push_back({std::string(moment)});
  return tensors;
}

using UnitParams = std::pair<std::string, std::vector<partition::ParamSpec>>;

/// The units of the mean, by name.
std::vector<UnitParams> units_of(const Mean& mean) {
  std::vector<UnitParams> units;
  if (mean.whole != nullptr) {
    for (const spec::Unit& unit : mean.whole->units) units.emplace_back(unit.name, unit.flat());
    return units;
  }
  const Reader& first = *mean.readers.front();
  for (std::size_t unit = 0; unit < first.weight_units(); ++unit)
    units.emplace_back(first.unit_names()[unit], first.spaces()[unit].params());
  return units;
}

/// The manifest before the weights are known: layout and sections, but no digests.
Manifest plan_manifest(const comm::Context& context, const Mean& mean, const Output& output) {
  const Reader& first = *mean.readers.front();
  const Mixture& mixture = mean.mixture;
  std::uint64_t size_bytes = 0;
  const bool complete = output.moments != Moments::drop;
  const std::vector<spec::StateTensor> tensors = tensors_of(mean, complete);
  const auto units = units_of(mean);
  for (const auto& [name, params] : units)
    size_bytes += static_cast<std::uint64_t>(partition::FlatSpace(params, partition::Layout{}).used_size()) *
                  size_of(output.dtype) * tensors.size();
  const auto shards =
      narrow<int>(std::max<std::uint64_t>(1, (size_bytes + output.shard_bytes - 1) / output.shard_bytes));

  Manifest manifest;
  manifest.run_uuid = first.run_uuid();
  manifest.kind = checkpoint::Kind::export_;
  manifest.weights = output.dtype;
  manifest.wall_time_s = context.clock.wall_s();
  if (complete) manifest.sections = training_sections(mean, output);
  manifest.sections.model = first.sections().model;
  boost::json::array inputs, weights;
  Hasher recipe;
  for (const Reader* const reader : mean.readers) {
    manifest.step = std::max(manifest.step, reader->step());
    inputs.push_back({{"path", reader->directory().string()},
                      {"step", reader->step()},
                      {"run_uuid", reader->run_uuid()},
                      {"manifest", reader->self_digest()}});
    recipe.update(reader->self_digest());
  }
  for (const double weight : mixture.weights) weights.push_back(weight / mixture.divisor);
  recipe.update(std::as_bytes(std::span{mixture.weights})).update(std::as_bytes(std::span{&mixture.divisor, 1}));
  if (output.dtype != DType::f32) recipe.update(name_of(output.dtype));
  if (complete) recipe.update(name_of(output.moments));
  if (const auto* const of = output.section.if_contains("of")) recipe.update(std::string_view{of->as_string()});
  // Depends on inputs and weights only: the same soup always has the same shard files.
  manifest.save_nonce = recipe.digest().hex().substr(0, 16);
  manifest.sections.soup = output.section;
  manifest.sections.soup["inputs"] = std::move(inputs);
  manifest.sections.soup["weights"] = std::move(weights);
  if (mean.whole != nullptr) {
    manifest.sections.model["sharing"] = config::to_json(mean.whole->sharing);
    for (const checkpoint::Reader* reader : mean.readers) {  // by language, or one for all
      const boost::json::value* const own = reader->sections().model.if_contains("tokenizer_digest");
      if (own == nullptr || !own->is_object()) continue;
      boost::json::object& all = manifest.sections.model["tokenizer_digest"].as_object();
      for (const auto& language : own->get_object()) all.insert(language);
    }
    manifest.sections.soup["components"] = boost::json::value_from(partial_components(mean));
  }
  const partition::Layout layout{{shards}};
  for (const auto& [name, params] : units) {
    manifest.unit_names.push_back(name);
    manifest.spaces.emplace_back(params, layout);
    manifest.tensors.push_back(tensors);
  }
  return manifest;
}

}  // namespace

SoupResult write_mean(const comm::Context& context, const Mean& mean, const Output& output) {
  const Manifest manifest = plan_manifest(context, mean, output);
  SoupResult result{
      .output = output.target, .inputs = mean.readers.size(), .dtype = output.dtype, .shards = manifest.world()};
  for (const partition::FlatSpace& space : manifest.spaces) result.parameters += space.parameters();
  std::vector<checkpoint::Attachment> attachments;
  comm::at_root(context.world, [&] {
    const std::optional<std::string> tokenizers = tokenizers_of_all(mean);
    for (const std::string& name : mean.readers.front()->attachments())
      attachments.push_back(
          {name, name == tokenizer_file && tokenizers ? *tokenizers : mean.readers.front()->attachment(name)});
  });
  Averager averager{mean, manifest.spaces, manifest.tensors.front(), manifest.weights, output.moments};
  result.bytes_written = checkpoint::write_committed(
      context, output.target, manifest, attachments,
      {.slice = [&](std::size_t unit, std::size_t tensor, std::int64_t begin,
                    std::int64_t count) { return averager.average(unit, tensor, begin, count); },
       .slice_elements = Averager::slice_elements,
       .finish = [&] { averager.finish(); },
       .title = "soup"});
  std::int64_t bytes_read[] = {static_cast<std::int64_t>(averager.bytes_read())};
  context.world.all_reduce(bytes_read);
  result.bytes_read = static_cast<std::uint64_t>(bytes_read[0]);
  return result;
}

}  // namespace argosy::soup
