/// The format argosy: a committed checkpoint with weights alone, as a soup is. Imports end here.
#include <algorithm>

#include "checkpoint/write.hpp"
#include "core/error.hpp"
#include "interchange/formats.hpp"
#include "interchange/verify.hpp"
#include "model/stored_spec.hpp"

namespace argosy::interchange {
namespace {

/// Elements of a unit's flat space.
class FlatReader {
 public:
  FlatReader(const model::StoredModel& model, const std::vector<partition::FlatSpace>& spaces)
      : model_(model), spaces_(spaces) {}

  Bytes slice(std::size_t unit, std::int64_t begin, std::int64_t count) {
    const partition::FlatSpace& space = spaces_[unit];
    const std::int64_t end = begin + count;
    values_.assign(static_cast<std::size_t>(count), 0.0F);
    for (std::size_t p = 0; p < space.params().size() && space.offset(p) < end; ++p) {
      const std::int64_t from = std::max(begin, space.offset(p));
      const std::int64_t to = std::min(end, space.offset(p) + space.params()[p].numel());
      if (from >= to) continue;
      read_finite(
          model_, model_.spec.units[unit].parameter(space.params()[p].name), from - space.offset(p),
          std::span{values_}.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(to - from)));
    }
    return std::as_bytes(std::span{values_});
  }

 private:
  const model::StoredModel& model_;
  const std::vector<partition::FlatSpace>& spaces_;
  std::vector<float> values_;
};

std::optional<Facts> no_limit(const spec::Architecture&) { return std::nullopt; }

ExportReport write_argosy(comm::Context& context, const model::StoredModel& model, const Path& folder,
                          const ExportOptions& options) {
  const double begin_s = context.clock.monotonic_s();
  const Path target = unused_folder(context, folder);
  comm::agree(context.world, [&] {
    if (options.quantization == Quantization::float32) return;
    throw_claim(Fault::usage, "--format argosy stores weights as float32", "--quantization", "float32", "another type",
                "leave --quantization out");
  });
  checkpoint::Manifest manifest;
  manifest.run_uuid = model.id;
  manifest.save_nonce = manifest.run_uuid.substr(0, 16);
  manifest.kind = checkpoint::Kind::export_;
  manifest.wall_time_s = context.clock.wall_s();
  manifest.step = model.step;
  manifest.sections.model = model::model_section(model.config, data::digests_of(model.tokenizer),
                                                 model.tokenizer.vocabulary().pieces, model.trained_in);
  manifest.sections.history.push_back(boost::json::object{
      {"step", model.step},
      {"change",
       fmt::format("weights taken from {}{}", model.where, model.task.empty() ? "" : ", task " + model.task)}});
  ExportReport report{.folder = target};
  for (const spec::Unit& unit : model.spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) report.parameters += parameter.numel();
  }
  const std::uint64_t bytes = static_cast<std::uint64_t>(report.parameters) * sizeof(float);
  const std::uint64_t shards =
      std::max<std::uint64_t>(1, (bytes + options.max_shard_bytes - 1) / options.max_shard_bytes);
  const partition::Layout layout{{narrow<int>(shards)}};
  for (const spec::Unit& unit : model.spec.units) {
    manifest.unit_names.push_back(unit.name);
    manifest.spaces.emplace_back(unit.flat(), layout);
    manifest.tensors.push_back({spec::StateTensor{std::string(spec::weights_tensor)}});
  }
  const std::vector<partition::FlatSpace> spaces = manifest.spaces;
  FlatReader reader{model, spaces};
  std::vector<checkpoint::Attachment> files = model.attachments;
  files.push_back({"tokenizer.model", model.tokenizer.model_bytes()});
  report.bytes = checkpoint::write_committed(
      context, target, std::move(manifest), files,
      {.slice = [&](std::size_t unit, std::size_t, std::int64_t begin,
                    std::int64_t count) { return reader.slice(unit, begin, count); },
       .slice_elements = 1 << 20,
       .title = "export",
       .last_check =
           [&](const Path& made) { report.verified = verify_checkpoint(context, made, target, model, options); }});
  if (options.verify_with) report.verified = context.world.broadcast(std::vector{report.verified.value_or(0)}).front();
  report.seconds = context.clock.monotonic_s() - begin_s;
  return report;
}

}  // namespace

Format argosy_checkpoint() {
  return {"argosy", "a checkpoint with weights alone, for apps/translate, apps/soup and init_from", no_limit,
          write_argosy,
          /*is_unlisted=*/true};
}

}  // namespace argosy::interchange
