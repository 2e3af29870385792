#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/run_main.hpp"
#include "core/bytes.hpp"
#include "partition/flat_space.hpp"
#include "spec/state.hpp"

/// Sharded checkpoints (FORMAT.md). A checkpoint is a directory with one HDF5 file per rank and a manifest; the rename
/// of the directory commits it. The stored state does not depend on the ZeRO stage. This module reads and writes host
/// memory; train copies to and from devices. One thread calls HDF5.
namespace argosy::checkpoint {

/// This rank's part (spec::owned_parts) of one tensor of a unit, its slices in ascending order and without gaps.
struct TensorShard {
  spec::StateTensor tensor;  // by element or block
  MutableBytes bytes;
  /// The numbers of an fp32 tensor; empty if it is another type.
  [[nodiscard]] std::span<float> values() const noexcept;
};

/// Tensors of one unit (spec/state.hpp) in the order in which they are stored, the weights first. A save reads them and
/// a load writes them. If the checkpoint has no running mean of the weights, a load fills that tensor with the weights.
struct UnitState {
  std::string name;
  const partition::FlatSpace* space = nullptr;
  std::vector<TensorShard> tensors;
  /// The values of an fp32 tensor; empty if the unit does not have it.
  [[nodiscard]] std::span<float> tensor(std::string_view of_name) const noexcept;
};

enum class Kind { temp, export_ };  // NOLINT(readability-identifier-naming): `export` is a keyword

/// What a manifest contains besides shards and layout. FORMAT.md §3 lists the sections.
struct Sections {
  boost::json::object model;      // arch, config, config_digest, tokenizer_digest, vocab_size, tied[]
  boost::json::object optimizer;  // type, hparams, step
  boost::json::object schedule;   // name, args, step
  boost::json::object counters;   // src_tokens, tgt_tokens, padded_tokens, n_clips, skipped …
  boost::json::object data;       // dataset digests, seed, epoch, sample cursor …
  boost::json::object rng, metrics, best;
  boost::json::array history;
  boost::json::object soup;  // recipe, inputs, weights; empty for a training checkpoint
};

/// A file copied into every checkpoint (tokenizer.model, vocab_map.json).
struct Attachment {
  std::string name, content;
};

struct SaveReport {
  bool committed = false;
  std::string why_not{};  // the first failing rank and its error
  Path directory{};
  std::uint64_t bytes = 0;  // of all ranks' shards
  double seconds = 0;
};

class WeightStream;

/// Reads a committed checkpoint, on any number of ranks and for any layout. The constructor verifies the manifest;
/// reads verify each 4 MiB block that they touch. One thread.
class Reader {
 public:
  /// Reads and checks the manifest, and checks the sizes of all files. Not collective. Throws Error{data} when
  /// `directory` is not a checkpoint, Error{corrupt} on damage, Error{usage} for a format that is too new.
  Reader(const Files& files, const Path& directory);
  /// As above, with the text of the manifest from another rank, which has checked the sizes. Waits for files that this
  /// host does not see yet, up to 60 s of `clock` in all. Without a clock such a file is damage.
  Reader(const Files& files, const Path& directory, std::string_view manifest_text, const Clock* clock = nullptr);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  struct Parameter {
    std::string name;
    std::vector<std::int64_t> shape;
    std::size_t unit = 0;  // index into units()
  };
  [[nodiscard]] const Path& directory() const noexcept;
  [[nodiscard]] std::int64_t step() const noexcept;
  [[nodiscard]] const std::string& run_uuid() const noexcept;
  /// The digest of the manifest. It identifies the save.
  [[nodiscard]] const std::string& self_digest() const noexcept;
  /// Whether optimizer state is stored too.
  [[nodiscard]] bool has_optimizer_state() const noexcept;
  /// The number of units with weights. The units after them hold optimizer tensors of other shapes.
  [[nodiscard]] std::size_t weight_units() const noexcept;
  /// A unit's stored tensors, the weights first.
  [[nodiscard]] const std::vector<spec::StateTensor>& tensors(std::size_t unit) const;
  /// Whether a running mean of the weights is stored.
  [[nodiscard]] bool has_ema() const noexcept;
  /// From now on every read of the weights gives their running mean. Throws Error{data} when none is stored.
  void use_ema();
  /// The element type of the stored weights: f32, or bf16 in some soups. Reads convert to fp32.
  [[nodiscard]] DType weights() const noexcept;
  /// False if NaN or Inf was stored.
  [[nodiscard]] bool finite() const noexcept;
  [[nodiscard]] const Sections& sections() const noexcept;
  [[nodiscard]] const boost::json::object& manifest() const noexcept;
  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept;
  /// The flat spaces in the layout of the save, by unit.
  [[nodiscard]] const std::vector<partition::FlatSpace>& spaces() const noexcept;
  [[nodiscard]] const std::vector<std::string>& unit_names() const noexcept;
  /// The names of the files that were copied into the checkpoint.
  [[nodiscard]] std::vector<std::string> attachments() const;
  /// The verified content of one of them. Throws Error{data} when there is no such file, Error{corrupt} on damage.
  [[nodiscard]] std::string attachment(const std::string& name) const;
  /// A whole parameter in fp32, row-major, put together from all shards that hold a piece of it. Throws Error{data} for
  /// an unknown name, Error{corrupt} on damage.
  [[nodiscard]] std::vector<float> read_parameter(const std::string& name) const;
  /// Elements [begin, begin + to.size()) of parameter `index` (in parameters()). A block of which only a part is wanted
  /// is kept until the next one, so that reads in ascending order read each byte once. Throws Error{corrupt}.
  void read_elements(std::size_t index, std::int64_t begin, std::span<float> to) const;
  /// Of the weights, or of an optimizer's statistics.
  [[nodiscard]] bool has(const std::string& parameter) const;
  /// Fills `units` with what `canonical_rank` owns in the layout of their spaces; the save may have had another layout.
  /// Gaps and pads become zero. hash_blocks: verify the blocks that are read. Not collective. Throws Error{data} when a
  /// name, shape or tensor is not stored as it is wanted, Error{corrupt} on damage.
  void read_state(std::span<const UnitState> units, int canonical_rank, bool hash_blocks = true) const;
  struct Verified {
    std::uint64_t bytes = 0;  // of payload that was read and hashed
    bool finite = true;       // it contains no NaN or Inf
  };
  /// Compares every byte of all shards and copied files with its digests. With `parts` callers, each checks its own
  /// share of the blocks. Throws Error{corrupt}.
  Verified verify(int part = 0, int parts = 1) const;
  /// Whether both checkpoints hold the same weights, element for element; kinds and layouts may differ. Compares
  /// digests when the layouts are equal, else values up to the first difference. Throws Error{corrupt}.
  [[nodiscard]] bool has_weights_of(const Reader& other) const;
  /// Streams the weights (or their mean), or another fp32 tensor by element that every unit with weights has. Borrows
  /// the reader.
  [[nodiscard]] WeightStream stream(std::string_view tensor = spec::weights_tensor) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

enum class Verify {
  touched,  // hash each 4 MiB block that is read
  full,     // hash every block; a load that skipped a newer checkpoint always does
  none,     // hash the manifest and the digest tables only
};

struct LoadOptions {
  std::optional<Path> from{};  // load this checkpoint or fail; nullopt: the newest sound one of the run
  Verify verify = Verify::touched;
  /// With `from`, when the run has newer sound checkpoints. false: the load is refused. true: they are renamed to
  /// .old-<step>-<nonce>.
  bool abandon_newer = false;
  /// Units of which a checkpoint has no parameter keep what their memory holds. false: such a checkpoint is refused.
  bool may_lack_units = false;
  /// Called on every rank before a checkpoint is read. Error{corrupt} and Error{io} count as damage of the checkpoint;
  /// any other error ends the load.
  std::function<void(const Reader&)> check{};
};

/// When checkpoints that need not be kept are removed.
enum class Tidy {
  now,
  at_next_load,  // by the next job of the run: a job that must end soon does not wait for thousands of removals
};

/// The checkpoints of one run directory. Holds the run's lock (run.lock.<generation>). A second job gets Error{usage},
/// which names the first. A dead owner is replaced at once on the same host, on another when its heartbeat has stopped.
class Store {
 public:
  struct Options {
    std::int64_t max_checkpoints = 5;  // newest temporaries kept
    double heartbeat_s = 15;           // period at which the lock is renewed; 0: never, for tests that count calls
  };
  /// Creates the run directory, takes the lock and removes what dead saves have left. **Collective.** Throws
  /// Error{usage}, Error{io}.
  Store(comm::Context& context, Path run_dir, Options options);
  ~Store();

  /// Fills `units` for this rank from the newest sound checkpoint in checkpoints/ and export/. All ranks skip a
  /// checkpoint that is damaged on any rank, cannot be read, is not finite or has no optimizer state; a damaged one is
  /// renamed to .bad-…. Then removes old checkpoints. nullopt: none was ever committed. **Collective.** Throws
  /// Error{corrupt} with all reasons when no checkpoint can be loaded; Error{usage} for a newer format, and for
  /// `options.from` that is not the newest; what `options.check` throws.
  std::optional<Reader> load(std::span<const UnitState> units, const LoadOptions& options = {});
  /// The checkpoint that load() tries first. Its payload is not read. **Collective.** Throws as load().
  [[nodiscard]] std::optional<Reader> newest() const;
  /// Begins to write checkpoints/<step> or export/<step> in another thread. No other save may be in progress. The
  /// units' memory must stay valid until the save is over. The writing thread first calls `complete_units`, if given,
  /// which copies the state into that memory. A save that fails does not throw: it leaves earlier checkpoints as they
  /// are, and its report says why. **Collective.** Throws Error{usage} when another job has taken over the run.
  void begin_save(Kind kind, std::int64_t step, std::span<const UnitState> units, const Sections& sections,
                  std::span<const Attachment> attachments, std::function<void()> complete_units = {});
  [[nodiscard]] bool is_saving() const noexcept;
  /// Waits until `complete_units` has returned. The state may change afterwards. Not collective.
  void wait_for_units() const;
  /// The report of a save that ended since the last call; nullopt on all ranks otherwise. Costs one small reduction
  /// while a save is in progress, else nothing. **Collective.** Throws as begin_save().
  [[nodiscard]] std::optional<SaveReport> poll_save();
  /// Waits for the save in progress and returns its report; nullopt: there is none. **Collective.** Throws as
  /// begin_save().
  std::optional<SaveReport> finish_save(Tidy tidy = Tidy::now);
  /// Waits for the writing thread and drops the save unless it has been committed. Not collective.
  void abandon_save() noexcept;
  /// begin_save() and finish_save(). **Collective.** Throws as begin_save().
  SaveReport save(Kind kind, std::int64_t step, std::span<const UnitState> units, const Sections& sections,
                  std::span<const Attachment> attachments);
  [[nodiscard]] const Path& run_dir() const noexcept;
  /// The directory of a step's checkpoint once it is committed.
  [[nodiscard]] Path place_of(Kind kind, std::int64_t step) const;
  /// The longest time in seconds that removing old checkpoints after a commit has taken so far, including a removal in
  /// progress. The next save waits for it. 0 on ranks other than 0.
  [[nodiscard]] double tidying_s() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace argosy::checkpoint
