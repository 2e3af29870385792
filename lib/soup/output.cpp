#include "soup/output.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "core/error.hpp"
#include "core/staged.hpp"
#include "soup/averager.hpp"

namespace argosy::soup {
namespace {

using checkpoint::block_bytes;
using checkpoint::Manifest;
using checkpoint::Reader;

/// One 4 MiB block of the output.
struct Block {
  int shard;
  std::size_t unit, tensor;  // tensor: 0 weights, 1 and 2 moments
  std::int64_t begin, end;   // elements of the shard's dataset
};

/// The sections with which training continues: those of the newest member, without its metrics.
checkpoint::Sections training_sections(const Mean& mean, const Output& output) {
  const Reader* newest = mean.readers.front();
  for (const Reader* const reader : mean.readers)
    if (reader->step() >= newest->step()) newest = reader;
  checkpoint::Sections sections = newest->sections();
  sections.metrics = {};
  // The optimizer's step belongs to its moments: it corrects the bias of moments that began at zero.
  if (output.moments == Moments::zero) sections.optimizer["step"] = 0;
  if (output.moments == Moments::first)
    sections.optimizer["step"] = mean.readers.front()->sections().optimizer.at("step");
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

/// The manifest before the weights are known: layout and sections, but no digests.
Manifest plan_manifest(const comm::Context& context, const Mean& mean, const Output& output) {
  const Reader& first = *mean.readers.front();
  const Mixture& mixture = mean.mixture;
  std::uint64_t size_bytes = 0;
  const bool complete = output.moments != Moments::drop;
  const std::vector<spec::StateTensor> tensors = tensors_of(mean, complete);
  const std::size_t units = first.weight_units();
  for (const partition::FlatSpace& space : std::span{first.spaces()}.first(units))
    size_bytes += static_cast<std::uint64_t>(space.used_size()) * size_of(output.dtype) * tensors.size();
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
  const partition::Layout layout{{shards}};
  for (std::size_t unit = 0; unit < units; ++unit) {
    manifest.unit_names.push_back(first.unit_names()[unit]);
    manifest.spaces.emplace_back(first.spaces()[unit].params(), layout);
    manifest.tensors.push_back(tensors);
  }
  manifest.shards.resize(static_cast<std::size_t>(shards));
  return manifest;
}

std::vector<Block> blocks_of(const Manifest& manifest) {
  const auto block_elements = static_cast<std::int64_t>(block_bytes / size_of(manifest.weights));
  std::vector<Block> blocks;
  for (int shard = 0; shard < manifest.world(); ++shard) {
    for (std::size_t unit = 0; unit < manifest.spaces.size(); ++unit) {
      const std::int64_t size = manifest.spaces[unit].owned_size(shard);
      for (std::size_t tensor = 0; tensor < manifest.tensors[unit].size(); ++tensor) {
        for (std::int64_t begin = 0; begin < size; begin += block_elements)
          blocks.push_back({shard, unit, tensor, begin, std::min(size, begin + block_elements)});
      }
    }
  }
  return blocks;
}

struct Share {
  std::vector<Digest> digests;  // by block
  std::uint64_t bytes_read = 0;
};

/// Computes, writes and syncs this rank's blocks.
Share write_share(const comm::Context& context, const Mean& mean, const Manifest& manifest,
                  std::span<const checkpoint::ShardMap> maps, const checkpoint::Staging& staging,
                  std::span<const Block> blocks, Moments moments) {
  Averager averager{mean, manifest.spaces, manifest.tensors.front(), manifest.weights, moments};
  Share share;
  File file;
  int open_shard = -1;
  const auto finish_file = [&] {
    if (open_shard < 0) return;
    file.sync();
    file.close();
  };
  for (const Block& block : blocks) {
    if (block.shard != open_shard) {
      finish_file();
      file = context.files.update(staging.folder() / checkpoint::shard_name(block.shard, manifest.world()));
      open_shard = block.shard;
    }
    const partition::FlatSpace& space = manifest.spaces[block.unit];
    const checkpoint::ShardMap::Dataset& dataset =
        maps[static_cast<std::size_t>(block.shard)]
            .datasets[block.unit * manifest.tensors.front().size() + block.tensor];
    Hasher hasher;
    for (std::int64_t at = block.begin; at < block.end; at += Averager::slice_elements) {
      const Bytes slice = averager.average(block.unit, block.tensor, space.slice_begin(block.shard) + at,
                                           std::min(Averager::slice_elements, block.end - at));
      hasher.update(slice);
      file.write_at(slice, dataset.offset + static_cast<std::uint64_t>(at) * size_of(manifest.weights));
    }
    share.digests.push_back(hasher.digest());
    context.log.progress("soup", static_cast<double>(share.digests.size()), static_cast<double>(blocks.size()));
  }
  finish_file();
  averager.finish();
  share.bytes_read = averager.bytes_read();
  return share;
}

/// Rank 0: writes the index and the digest tables of every shard, and puts the root digests into the manifest.
void finish_shards(const Files& files, Manifest& manifest, std::span<const checkpoint::ShardMap> maps,
                   const checkpoint::Staging& staging, std::span<const Digest> digests) {
  const std::size_t states = manifest.spaces.size() * manifest.tensors.front().size();
  for (int shard = 0; shard < manifest.world(); ++shard) {
    const checkpoint::ShardMap& map = maps[static_cast<std::size_t>(shard)];
    Manifest::Shard& entry = manifest.shards[static_cast<std::size_t>(shard)];
    const std::vector<std::vector<std::byte>> columns = manifest.index(shard);
    File file = files.update(staging.folder() / checkpoint::shard_name(shard, manifest.world()));
    std::vector<std::vector<Digest>> tables;
    for (std::size_t d = 0; d < map.datasets.size(); ++d) {
      const checkpoint::ShardMap::Dataset& dataset = map.datasets[d];
      std::vector<Digest>& table = tables.emplace_back();
      if (d < states) {
        const std::span<const Digest> own = digests.first(dataset.spec.blocks());
        table.assign(own.begin(), own.end());
        digests = digests.subspan(own.size());
      } else {
        table = checkpoint::write_blocks(file, columns[d - states], dataset.offset);
      }
      if (!table.empty()) file.write_at(std::as_bytes(std::span{table}), dataset.digest_offset);
    }
    file.sync();
    file.close();
    entry.size_bytes = map.size_bytes;
    entry.root = checkpoint::root_digest(map, tables);
  }
}

}  // namespace

SoupResult write_mean(const comm::Context& context, const Mean& mean, const Output& output) {
  const comm::Communicator& world = context.world;
  const double begin_s = context.clock.monotonic_s();
  Manifest manifest = plan_manifest(context, mean, output);
  const std::vector<Block> blocks = blocks_of(manifest);
  std::string nonce;
  comm::at_root(world, [&] {
    const Owner self = Owner::of_this_process(context.files, context.clock);
    sweep_staged_folders(context.files, context.log, output.target.parent_path(), self);
    nonce = owned_nonce(self);
  });
  const checkpoint::Staging staging{context.files, output.target, world.broadcast(nonce)};
  SoupResult result{
      .output = output.target, .inputs = mean.readers.size(), .dtype = output.dtype, .shards = manifest.world()};
  for (const Block& block : blocks)
    result.bytes_written += static_cast<std::uint64_t>(block.end - block.begin) * size_of(output.dtype);
  for (const partition::FlatSpace& space : manifest.spaces) result.parameters += space.parameters();

  // A soup that fails leaves no files.
  const auto guarded = [&](const std::function<void()>& body) {
    try {
      comm::agree(world, body);
    } catch (const Error&) {
      if (context.is_root()) staging.discard();
      throw;
    }
  };
  std::vector<checkpoint::ShardMap> maps;
  guarded([&] {
    if (!context.is_root()) return;
    staging.open(result.bytes_written, manifest.world());
    for (int shard = 0; shard < manifest.world(); ++shard) {
      const Path path = staging.folder() / checkpoint::shard_name(shard, manifest.world());
      maps.push_back(checkpoint::create_shard(context.files, path, manifest.identity(shard), manifest.specs(shard)));
      File file = context.files.update(path);
      file.reserve(maps.back().size_bytes);
      file.close();
    }
  });
  // The others ask HDF5 where rank 0's datasets lie.
  guarded([&] {
    for (int shard = 0; !context.is_root() && shard < manifest.world(); ++shard) {
      const Path path = staging.folder() / checkpoint::shard_name(shard, manifest.world());
      maps.push_back(checkpoint::open_shard(context.files, path, manifest.identity(shard), manifest.specs(shard)));
    }
  });

  const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
  const std::size_t first = blocks.size() * rank / ranks, last = blocks.size() * (rank + 1) / ranks;
  Share share;
  guarded([&] {
    share = write_share(context, mean, manifest, maps, staging, std::span{blocks}.subspan(first, last - first),
                        output.moments);
  });
  std::vector<Digest> digests;  // on rank 0
  for (const std::vector<Digest>& part : world.gather(share.digests))
    digests.insert(digests.end(), part.begin(), part.end());
  std::int64_t bytes_read[] = {static_cast<std::int64_t>(share.bytes_read)};
  world.all_reduce(bytes_read);
  result.bytes_read = static_cast<std::uint64_t>(bytes_read[0]);

  guarded([&] {
    if (!context.is_root()) return;
    finish_shards(context.files, manifest, maps, staging, digests);
    manifest.save_seconds = context.clock.monotonic_s() - begin_s;
    std::vector<checkpoint::Attachment> attachments;
    for (const std::string& name : mean.readers.front()->attachments())
      attachments.push_back({name, mean.readers.front()->attachment(name)});
    staging.commit(
        manifest, attachments, [] {}, Fault::usage);
  });
  return result;
}

}  // namespace argosy::soup
