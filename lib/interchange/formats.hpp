#pragma once

#include <boost/describe.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "comm/run_main.hpp"
#include "core/error.hpp"
#include "spec/model_config.hpp"

/// The foreign formats that a committed checkpoint or soup can be written in, as one table. A format is a source file
/// of its own that defines its entry, and an entry in formats.cpp. FORMAT.md describes what is written. Torch-free.
namespace argosy::interchange {

enum class Quantization { float32, float16, bfloat16, int8 };
BOOST_DESCRIBE_ENUM(Quantization, float32, float16, bfloat16, int8)

struct ExportReport {
  Path folder;
  std::uint64_t bytes = 0;      // of the weights' file
  std::int64_t parameters = 0;  // elements; tied weights count once, unused rows of the vocabulary do not count
  double seconds = 0;
};

struct Format {
  std::string_view name;         // as --format takes it
  std::string_view description;  // for --help
  /// What the format cannot represent of a model; nullopt: it can represent the whole.
  std::optional<Facts> (*limit)(const spec::Architecture& architecture);
  /// Writes a checkpoint as `folder`, which appears under its name only when it is complete. The bytes do not depend on
  /// the number of ranks. **Collective.** Throws Error{usage} when `folder` exists or the format has a limit for this
  /// model, Error{data} when the vocabulary holds a piece twice, Error{numeric} for weights that the quantization
  /// cannot hold, Error{corrupt}, Error{io}.
  ExportReport (*write)(comm::Context& context, const checkpoint::Reader& reader, const Path& folder,
                        Quantization quantization);
};

[[nodiscard]] std::span<const Format> formats();

/// Throws Error{usage} with all names for any other.
[[nodiscard]] const Format& format_named(std::string_view name);

/// The names of the formats that can represent the model.
[[nodiscard]] std::vector<std::string> formats_for(const spec::Architecture& architecture);

}  // namespace argosy::interchange
