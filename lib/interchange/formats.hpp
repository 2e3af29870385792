#pragma once

#include <boost/describe.hpp>
#include <boost/json/value.hpp>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/run_main.hpp"
#include "core/error.hpp"
#include "core/staged.hpp"
#include "model/forward.hpp"

/// The table of formats that a model (source.hpp) can be exported to. Each format has its own source file, which
/// defines its entry, and a line in formats.cpp. FORMAT.md describes the output. Torch-free.
namespace argosy::interchange {

/// What matrices are stored as, and after an underscore all else; int8 and int16 alone: float32.
enum class Quantization { float32, float16, bfloat16, int8, int8_float32, int8_float16, int8_bfloat16, int16 };
BOOST_DESCRIBE_ENUM(Quantization, float32, float16, bfloat16, int8, int8_float32, int8_float16, int8_bfloat16, int16)

struct ExportReport {
  Path folder;
  std::uint64_t bytes = 0;      // of the weights' files
  std::int64_t parameters = 0;  // elements; tied weights count once, unused rows of the vocabulary do not count
  double seconds = 0;
  std::optional<std::int64_t> verified{};  // tensors that were read back; nullopt: none, as it was not asked for
};

struct ExportOptions {
  Quantization quantization = Quantization::float32;
  std::uint64_t max_shard_bytes = 5'000'000'000;  // of a file of weights, in formats that have several
  /// If given, the folder is read back before it gets its name (verify.hpp).
  model::Forward verify_with{};
};

struct Format {
  std::string_view name;         // as --format takes it
  std::string_view description;  // for --help
  /// Why the format cannot represent a model; nullopt: it can.
  std::optional<Facts> (*limit)(const spec::Architecture& architecture);
  /// Exports a model to `folder`, which gets its name only when it is complete. The bytes do not depend on the
  /// number of ranks. **Collective.** Throws Error{usage} when `folder` exists or the format has a limit for this
  /// model, Error{data} when the vocabulary holds a piece twice, Error{numeric} for weights that the quantization
  /// cannot hold, Error{corrupt}, also for a folder that does not hold the model (verify.hpp), Error{io}.
  ExportReport (*write)(comm::Context& context, const model::StoredModel& model, const Path& folder,
                        const ExportOptions& options);
  /// Not among the formats that a plan names for a model: Argosy's own, and what holds a part of a model.
  bool is_unlisted = false;
};

[[nodiscard]] std::span<const Format> formats();

/// The format of that name. Throws Error{usage}, which lists all names, for an unknown one.
[[nodiscard]] const Format& format_named(std::string_view name);

/// The names of the formats of other programs that can represent the model.
[[nodiscard]] std::vector<std::string> formats_for(const spec::Architecture& architecture);

/// The type in which the model was trained. Argosy's own format and adapters have fp32 alone.
[[nodiscard]] Quantization default_quantization(const Format& format, const model::StoredModel& model);

/// Reads elements of a parameter as its weights do. Throws Error{numeric} for NaN and infinity as well.
void read_finite(const model::StoredModel& model, const spec::Parameter& parameter, std::int64_t begin,
                 std::span<float> to);
/// Fills `to` with elements of a parameter from `begin` on, as `dtype` (to_floats()). Throws as both.
void fill_floats(const model::StoredModel& model, const spec::Parameter& parameter, std::int64_t begin, DType dtype,
                 std::string_view name, MutableBytes to);

/// The spelling of each live id. Throws Error{data} if the tokenizer has a piece twice.
[[nodiscard]] std::vector<std::string> distinct_pieces(const data::Tokenizer& tokenizer);

/// Throws Error{data} where the sides have a tokenizer each and one is no SentencePiece model.
void refuse_sides(const data::Tokenizer& tokenizer, std::string_view format);

/// A JSON file.
[[nodiscard]] std::string pretty(const boost::json::value& value);

/// The path without a slash at its end. **Collective.** Throws Error{usage} when it exists.
[[nodiscard]] Path unused_folder(comm::Context& context, Path folder);

/// The formats of other programs are written into such a folder, which has a temporary name next to the final one.
/// commit() renames it and replaces nothing. Without a commit the destructor removes it.
class OutputFolder {
 public:
  /// Makes the folder, and removes those of killed jobs. **Collective.** Throws Error{usage} when `final_path` exists.
  OutputFolder(comm::Context& context, Path final_path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  [[nodiscard]] const Path& path() const noexcept { return staged_->path(); }
  [[nodiscard]] const Path& target() const noexcept { return staged_->target(); }
  /// Writes and fsyncs a small file; rank 0 does. **Collective.**
  void write(const std::string& name, std::string_view content);
  /// The SHA-256 of files that others have written into the folder. Files whose sum is not known are read.
  void add_sums(const std::map<std::string, std::string>& sums) { sums_.insert(sums.begin(), sums.end()); }
  /// Writes SHA256SUMS of all files, calls `check` on all ranks, syncs the folder, renames it and syncs its parent.
  /// **Collective.** Throws Error{usage} when `final_path` exists by now, and what `check` throws.
  void commit(const std::function<void()>& check = [] {});

 private:
  comm::Context& context_;
  std::optional<StagedFolder> staged_;
  std::map<std::string, std::string> sums_;  // SHA-256 by name; rank 0
  bool committed_ = false;
};

}  // namespace argosy::interchange
