#pragma once

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "core/hash.hpp"
#include "support/mpi_test.hpp"

/// What tests of checkpoints and soups share: a context over any door to the OS, and a small model whose every element
/// is a pure function of its name, so that any rank of any layout knows what it should hold.
namespace argosy::test {

/// A context for the ranks of `world`, quiet: what tests provoke is no news.
class TestContext {
 public:
  explicit TestContext(Os& os, const comm::Communicator& ranks, Hierarchy hierarchy = Hierarchy::flat,
                       const Clock& clock = real_clock())
      : topology_(
            comm::Topology::discover(ranks, "node" + std::to_string(node_of(hierarchy, ranks.rank(), ranks.size())))),
        log_(ranks.rank(), LogLevel::off),
        context_{ranks, topology_, log_, Files{os}, clock, stop()} {}
  TestContext(const TestContext&) = delete;
  TestContext& operator=(const TestContext&) = delete;
  [[nodiscard]] comm::Context& get() { return context_; }
  [[nodiscard]] const comm::Topology& topology() const { return topology_; }

 private:
  static const StopSignals& stop() {
    static const StopSignals signals;
    return signals;
  }
  static const Clock& real_clock() {
    static const Clock clock;
    return clock;
  }
  comm::Topology topology_;
  Log log_;
  comm::Context context_;
};

using Units = std::vector<std::pair<std::string, std::vector<partition::ParamSpec>>>;

/// A few KB in three units, nothing divisible by anything.
inline Units tiny_units() {
  return {{"embedding", {{"embedding/weight", {37, 19}}}},
          {"block.0",
           {{"block.0/norm", {19}, false},
            {"block.0/up", {19, 53}},
            {"block.0/bias", {53}, false},
            {"block.0/down", {53, 19}}}},
          {"head", {{"head/scale", {}, false}, {"head/weight", {19, 301}}}}};
}

/// Large enough for several blocks of 4 MiB in one unit.
inline Units large_units() {
  return {{"embedding", {{"embedding/weight", {1500, 1001}}, {"embedding/bias", {1001}, false}}},
          {"head", {{"head/weight", {7, 300}}}}};
}

/// Element `index` of tensor 0 (weights), 1 or 2 (moments) or 3 (running mean) of a parameter: in [-1, 1), about 24
/// bits.
inline float element(const std::string& name, std::size_t tensor, std::int64_t index, std::uint64_t seed) {
  const std::uint64_t key = hash64(name, tensor < 3 ? seed * 3 + tensor : ~seed);
  const std::uint64_t bits = hash64(std::as_bytes(std::span{&index, 1}), key);
  return static_cast<float>(static_cast<double>(bits >> 40) / (1 << 23) - 1.0);
}

/// One rank's share of a model's state, with a running mean or without.
class Toy {
 public:
  Toy(const Units& units, const partition::Layout& layout, int canonical_rank, bool ema = false)
      : rank_(canonical_rank) {
    for (const auto& [name, params] : units) {
      names_.push_back(name);
      spaces_.emplace_back(params, layout);
    }
    for (const partition::FlatSpace& space : spaces_) {
      const auto owned = static_cast<std::size_t>(space.owned_size(rank_));
      for (std::size_t t = 0; t < std::size(tensors_); ++t) tensors_[t].emplace_back(t < 3 || ema ? owned : 0, 0.0F);
    }
  }
  /// What a model trained from `seed` holds.
  Toy& fill(std::uint64_t seed) {
    for (std::size_t u = 0; u < spaces_.size(); ++u) {
      for (const partition::Interval& i : partition::intervals_of(spaces_[u], rank_))
        for (std::int64_t at = i.begin; at < i.end; ++at) {
          for (std::size_t t = 0; t < std::size(tensors_) && !tensors_[t][u].empty(); ++t)
            tensors_[t][u][static_cast<std::size_t>(i.local_offset + at - i.begin)] =
                element(spaces_[u].params()[i.param].name, t, at, seed);
        }
    }
    return *this;
  }
  /// Every element, gaps included.
  Toy& fill_all(float value) {
    for (auto& tensor : tensors_)
      for (auto& unit : tensor) std::fill(unit.begin(), unit.end(), value);
    return *this;
  }
  [[nodiscard]] std::vector<checkpoint::UnitState> states(bool with_moments = true) {
    std::vector<checkpoint::UnitState> states;
    const std::string_view names[] = {spec::weights_tensor, spec::adam_moments[0], spec::adam_moments[1],
                                      spec::mean_tensor};
    for (std::size_t u = 0; u < spaces_.size(); ++u) {
      checkpoint::UnitState& unit = states.emplace_back(checkpoint::UnitState{names_[u], &spaces_[u], {}});
      for (std::size_t t = 0; t < std::size(tensors_); ++t) {
        const bool moment = t == 1 || t == 2;
        if (tensors_[t][u].empty() || (moment && !with_moments)) continue;
        unit.tensors.push_back({{std::string(names[t])}, std::as_writable_bytes(std::span{tensors_[t][u]})});
      }
    }
    return states;
  }
  [[nodiscard]] bool operator==(const Toy& other) const {
    for (std::size_t t = 0; t < std::size(tensors_); ++t)
      for (std::size_t u = 0; u < spaces_.size(); ++u) {
        const auto &a = tensors_[t][u], &b = other.tensors_[t][u];
        if (a.size() != b.size() || (!a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0))
          return false;
      }
    return true;
  }
  [[nodiscard]] std::vector<float>& tensor(std::size_t t, std::size_t unit) { return tensors_[t][unit]; }
  [[nodiscard]] const std::vector<partition::FlatSpace>& spaces() const { return spaces_; }

 private:
  int rank_;
  std::vector<std::string> names_;
  std::vector<partition::FlatSpace> spaces_;
  std::vector<std::vector<float>> tensors_[4];  // by tensor, unit
};

inline checkpoint::Sections toy_sections(double loss = 2.5) {
  checkpoint::Sections sections;
  sections.model = {{"arch", "toy"},
                    {"config_digest", "c0ffee"},
                    {"tokenizer_digest", "beef"},
                    {"vocab_size", 37},
                    {"tied", boost::json::array{}}};
  sections.schedule = {{"name", "cosine"}, {"args", {{"peak", 1.0 / 3.0}}}};
  sections.metrics = {{"loss", loss}};
  return sections;
}

inline std::vector<checkpoint::Attachment> toy_attachments() {
  return {{"tokenizer.model", std::string("pieces\0!", 8)}};
}

/// What AdamW stores of so many units; without `complete` their weights alone.
inline std::vector<std::vector<spec::StateTensor>> adamw_tensors(std::size_t units, bool ema = false,
                                                                 bool complete = true) {
  std::vector<spec::StateTensor> tensors{{std::string(spec::weights_tensor)}};
  for (const std::string_view name : spec::adam_moments)
    if (complete) tensors.push_back({std::string(name)});
  if (ema) tensors.push_back({std::string(spec::mean_tensor)});
  return {units, tensors};
}

/// A manifest of step 5 of a model in a layout, complete but for what is stored.
inline checkpoint::Manifest manifest_of(const Units& units, const partition::Layout& layout) {
  checkpoint::Manifest manifest{.run_uuid = std::string(32, 'a'), .save_nonce = std::string(16, 'b'), .step = 5};
  manifest.sections = toy_sections();
  for (const auto& [name, params] : units) {
    manifest.unit_names.push_back(name);
    manifest.spaces.emplace_back(params, layout);
  }
  manifest.tensors = adamw_tensors(units.size());
  return manifest;
}

/// Commits a checkpoint to `target`: this process writes the shards of all ranks, of which `values_of(rank)` gives the
/// bytes of every tensor of every unit, in stored order.
template <class ValuesOf>
void commit_shards(const Files& files, const Path& target, checkpoint::Manifest manifest,
                   std::span<const checkpoint::Attachment> attachments, const ValuesOf& values_of) {
  const checkpoint::Staging staging{files, target, manifest.save_nonce};
  const int world = manifest.spaces.front().layout().world();
  staging.open(0, world);
  for (int rank = 0; rank < world; ++rank) {
    std::vector<Bytes> payload = values_of(rank);
    const std::vector<std::vector<std::byte>> index = manifest.index(rank);
    payload.insert(payload.end(), index.begin(), index.end());
    const Path shard = staging.folder() / checkpoint::shard_name(rank, world);
    const checkpoint::ShardMap map = create_shard(files, shard, manifest.identity(rank), manifest.specs(rank));
    manifest.shards.push_back({map.size_bytes, write_shard(files, shard, map, payload).root});
  }
  staging.commit(std::move(manifest), attachments, [] {});
}

/// The bytes of units' tensors, in stored order.
inline std::vector<Bytes> bytes_of(std::span<const checkpoint::UnitState> units) {
  std::vector<Bytes> bytes;
  for (const checkpoint::UnitState& unit : units)
    for (const checkpoint::TensorShard& tensor : unit.tensors) bytes.push_back(tensor.bytes);
  return bytes;
}

/// Commits to `target` what a model trained from `seed` holds; this process writes the shards of all ranks of `layout`.
/// Of `save` its rank and world do not count.
inline void write_checkpoint(const Files& files, const Path& target, const Units& units,
                             const partition::Layout& layout, std::uint64_t seed,
                             const checkpoint::ShardIdentity& save = {.run_uuid = std::string(32, 'a'),
                                                                      .save_nonce = std::string(16, 'b'),
                                                                      .step = 5},
                             bool ema = false) {
  checkpoint::Manifest manifest = manifest_of(units, layout);
  manifest.run_uuid = save.run_uuid;
  manifest.save_nonce = save.save_nonce;
  manifest.step = save.step;
  manifest.tensors = adamw_tensors(units.size(), ema);
  std::optional<Toy> toy;
  commit_shards(files, target, std::move(manifest), toy_attachments(), [&](int rank) {
    toy.emplace(units, layout, rank, ema);
    return bytes_of(toy->fill(seed).states());
  });
}

/// Saves a state as a step of the run in the folder `run`, on one rank. Returns the checkpoint's folder.
inline Path save_step(TestContext& context, const Path& run, std::int64_t step,
                      std::span<const checkpoint::UnitState> units,
                      const checkpoint::Sections& sections = toy_sections(),
                      const std::vector<checkpoint::Attachment>& attachments = toy_attachments(),
                      checkpoint::Kind kind = checkpoint::Kind::temp) {
  checkpoint::Store store{context.get(), run, {}};
  const checkpoint::SaveReport report = store.save(kind, step, units, sections, attachments);
  if (!report.committed) throw std::runtime_error(report.why_not);
  return report.directory;
}

/// A manifest's text with a right digest, whatever it says.
inline std::string sealed(boost::json::object document) {
  document.erase("self");
  std::string body = boost::json::serialize(document);
  body.back() = ',';
  return checkpoint::with_self_digest(body + "\n");
}

/// Runs `change` on the manifest's JSON and seals it again with a right digest.
template <class Change>
void edit_manifest(const Path& directory, Change change) {
  const Files files = Files::system();
  const Path path = directory / checkpoint::manifest_name;
  boost::json::object document = checkpoint::parse_manifest(files.read_text(path), path.string()).document;
  change(document);
  files.write_atomically(path, sealed(document));
}

/// Where the datasets of one shard lie in its file.
inline checkpoint::ShardMap map_of(const Path& directory, int rank) {
  const Files files = Files::system();
  const checkpoint::Manifest manifest =
      checkpoint::parse_manifest(files.read_text(directory / checkpoint::manifest_name), directory.string()).manifest;
  const Path path = directory / checkpoint::shard_name(rank, manifest.world());
  return checkpoint::open_shard(files, path, manifest.identity(rank), manifest.specs(rank));
}

/// Flips one bit of a file.
inline void flip(const Path& path, std::uint64_t offset, int bit = 0) {
  File file = Files::system().update(path);
  std::byte byte{};
  file.read_at({&byte, 1}, offset);
  byte ^= std::byte{1} << bit;
  file.write_at({&byte, 1}, offset);
}

}  // namespace argosy::test
