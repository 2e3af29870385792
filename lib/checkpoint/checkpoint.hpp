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

/// Sharded checkpoints (FORMAT.md): one HDF5 file a rank, a manifest, a directory whose rename is the commit. Stored
/// state does not depend on the ZeRO stage. Takes and gives host bytes; device copies belong to train. HDF5 is touched
/// by one thread.
namespace argosy::checkpoint {

/// This rank's slices of one tensor of a unit, ascending, end to end: [space.owned_size(canonical_rank)].
struct TensorShard {
  std::string name;
  std::span<float> values;
};

/// Some tensors of one unit (spec/state.hpp), in the order in which they are stored, the weights first. Used for saving
/// (read) and loading (written). From a checkpoint without a running mean that tensor gets the weights, where a mean
/// begins.
struct UnitState {
  std::string name;
  const partition::FlatSpace* space = nullptr;
  std::vector<TensorShard> tensors;
  /// Empty when it is not among them.
  [[nodiscard]] std::span<float> tensor(std::string_view of_name) const noexcept;
};

enum class Kind { temp, export_ };  // NOLINT(readability-identifier-naming): `export` is a keyword

/// Everything a manifest says beside shards and layout; sections as FORMAT.md §3 names them.
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
  std::string why_not{};  // first failing rank, call, errno
  Path directory{};
  std::uint64_t bytes = 0;  // all ranks
  double seconds = 0;
};

class WeightStream;

/// A committed checkpoint seen from outside: its manifest, verified, and where its shards lie. Any number of ranks may
/// read it. Reads the tensors of another layout by interval intersection; every touched 4 MiB block is verified. One
/// thread.
class Reader {
 public:
  /// Reads and checks the manifest. Throws Error{data} when `directory` is no checkpoint, Error{corrupt} on damage,
  /// Error{usage} for a format that is too new. Not collective.
  Reader(const Files& files, const Path& directory);
  /// From the manifest's text, which another rank has read and whose files it has found to be there. A file that this
  /// host does not see yet is waited for, 60 s of `clock` in all; without a clock it is missing.
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
  /// Digest of the manifest: names this very save.
  [[nodiscard]] const std::string& self_digest() const noexcept;
  /// Holds optimizer state, not weights only.
  [[nodiscard]] bool has_optimizer_state() const noexcept;
  /// Names of the tensors stored of a unit, the weights first.
  [[nodiscard]] const std::vector<std::string>& tensors(std::size_t unit) const;
  /// Holds a running mean of the weights.
  [[nodiscard]] bool has_ema() const noexcept;
  /// From here on whoever asks for the weights gets their running mean. Throws Error{data} where there is none.
  void use_ema();
  /// Element type of the stored weights: f32, or bf16 in some soups. Whoever reads them gets fp32.
  [[nodiscard]] DType weights() const noexcept;
  /// No NaN or Inf was stored.
  [[nodiscard]] bool finite() const noexcept;
  [[nodiscard]] const Sections& sections() const noexcept;
  [[nodiscard]] const boost::json::object& manifest() const noexcept;
  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept;
  /// The spaces as they were saved, by unit.
  [[nodiscard]] const std::vector<partition::FlatSpace>& spaces() const noexcept;
  [[nodiscard]] const std::vector<std::string>& unit_names() const noexcept;
  /// Names of the files copied into the checkpoint.
  [[nodiscard]] std::vector<std::string> attachments() const;
  /// Content of one of them, verified. Throws Error{data} when it is not there, Error{corrupt} on damage.
  [[nodiscard]] std::string attachment(const std::string& name) const;
  /// A whole parameter in fp32, row-major, from all shards that hold a piece of it. Throws Error{data} for an unknown
  /// name, Error{corrupt} on damage.
  [[nodiscard]] std::vector<float> read_parameter(const std::string& name) const;
  /// Fills `units` for `canonical_rank` of their spaces' layout, whatever layout was saved; gaps and pads become zero.
  /// Not collective. Throws Error{data} when names, shapes or tensors are not the stored ones, Error{corrupt} on
  /// damage: of blocks, unless they are not to be hashed.
  void read_state(std::span<const UnitState> units, int canonical_rank, bool hash_blocks = true) const;
  struct Verified {
    std::uint64_t bytes = 0;  // of payload, read and hashed
    bool finite = true;       // no NaN or Inf in them
  };
  /// Every byte of every shard and file against its digests; of `parts` callers each checks its own share of the
  /// blocks. Throws Error{corrupt}.
  Verified verify(int part = 0, int parts = 1) const;
  /// Whether both hold the same weights, element for element, whatever their kinds and layouts. Of one layout their
  /// digests are compared; of two, values up to the first that differ, all of them where none does. Throws
  /// Error{corrupt}.
  [[nodiscard]] bool has_weights_of(const Reader& other) const;
  /// Of the weights (or their mean), or of a tensor that is stored of every unit. Borrows the reader
  /// (weight_stream.hpp).
  [[nodiscard]] WeightStream stream(std::string_view tensor = spec::weights_tensor) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

enum class Verify {
  touched,  // hashes each 4 MiB block that is read
  full,     // and each that is not; so does every load that has passed a newer checkpoint over
  none,     // hashes manifest and digest tables only
};

struct LoadOptions {
  std::optional<Path> from{};  // this checkpoint or none; nullopt: the newest sound one of the run
  Verify verify = Verify::touched;
  /// A named checkpoint beside newer sound ones of the run is refused, or else these are renamed to
  /// .old-<step>-<nonce>.
  bool abandon_newer = false;
  /// Called on every rank with a checkpoint that is about to be read. Error{corrupt} and Error{io} are damage like any
  /// other; what else it throws ends the load: another model is no damage.
  std::function<void(const Reader&)> check{};
};

/// When checkpoints that need not be kept are removed.
enum class Tidy {
  now,
  at_next_load,  // by whoever goes on with the run: a job that has to leave does not wait for thousands of removals
};

/// The checkpoints of one run directory. Holds the run's lock (run.lock.<generation>): a second job gets Error{usage}
/// naming the first; a dead owner on the same host is taken over at once, one elsewhere when its heartbeat has stopped.
class Store {
 public:
  struct Options {
    std::int64_t max_checkpoints = 5;  // newest temporaries kept
    double heartbeat_s = 15;           // the lease is renewed so often; 0: never, for tests that count calls
  };
  /// **Collective.** Creates the run directory, takes the lock, sweeps dead temporaries. Throws Error{usage},
  /// Error{io}.
  Store(comm::Context& context, Path run_dir, Options options);
  ~Store();

  /// Fills `units` for this rank from the newest sound checkpoint of checkpoints/ and export/. One that is damaged on
  /// any rank is passed over by all and put aside (.bad-…); one that cannot be read, is not finite or holds weights
  /// only is passed over. Then removes what need not be kept. nullopt: none was ever committed. **Collective.** Throws
  /// Error{corrupt} when there are checkpoints and none can be loaded, with each one's reason; Error{usage} for a newer
  /// format, and where newer ones would be left behind; what `options.check` throws.
  std::optional<Reader> load(std::span<const UnitState> units, const LoadOptions& options = {});
  /// The checkpoint that load() tries first, its payload unread. **Collective.** Throws as load().
  [[nodiscard]] std::optional<Reader> newest() const;
  /// Begins to write checkpoints/<step> or export/<step> beside what the caller goes on with; none may be on its way.
  /// The units' memory stays where it is until the save is over. `complete_units`, if any, is called first by the
  /// writing thread, to bring the state into that memory. A save that fails leaves earlier checkpoints intact and is
  /// reported, not thrown; training goes on. **Collective.** Throws Error{usage} when another job has taken the run
  /// over.
  void begin_save(Kind kind, std::int64_t step, std::span<const UnitState> units, const Sections& sections,
                  std::span<const Attachment> attachments, std::function<void()> complete_units = {});
  [[nodiscard]] bool is_saving() const noexcept;
  /// Waits until `complete_units` has returned: the state may change from here on. Not collective.
  void wait_for_units() const;
  /// The report of the save that has come to its end since the last call, on all ranks at the same call. One small
  /// reduction while a save is on its way, nothing else. **Collective.** Throws as begin_save().
  [[nodiscard]] std::optional<SaveReport> poll_save();
  /// The report of the save on its way, which it waits for; nullopt: there is none. **Collective.** Throws as
  /// begin_save().
  std::optional<SaveReport> finish_save(Tidy tidy = Tidy::now);
  /// Waits for the thread of a save on its way and gives the save up, unless it has been committed. Not collective.
  void abandon_save() noexcept;
  /// Begins and finishes. **Collective.** Throws as begin_save().
  SaveReport save(Kind kind, std::int64_t step, std::span<const UnitState> units, const Sections& sections,
                  std::span<const Attachment> attachments);
  [[nodiscard]] const Path& run_dir() const noexcept;
  /// Where the checkpoint of a step lies once it is committed.
  [[nodiscard]] Path place_of(Kind kind, std::int64_t step) const;
  /// Seconds that the longest tidying up after a commit has taken so far, the one at work included: the next save waits
  /// for it. 0 on other ranks than 0.
  [[nodiscard]] double tidying_s() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace argosy::checkpoint
