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

/// The table of foreign formats that a committed checkpoint or soup can be exported to. Each format has its own source
/// file, which defines its entry, and a line in formats.cpp. FORMAT.md describes the output. Torch-free.
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
  /// Why the format cannot represent a model; nullopt: it can.
  std::optional<Facts> (*limit)(const spec::Architecture& architecture);
  /// Exports a checkpoint to `folder`, which gets its name only when it is complete. The bytes do not depend on the
  /// number of ranks. **Collective.** Throws Error{usage} when `folder` exists or the format has a limit for this
  /// model, Error{data} when the vocabulary holds a piece twice, Error{numeric} for weights that the quantization
  /// cannot hold, Error{corrupt}, Error{io}.
  ExportReport (*write)(comm::Context& context, const checkpoint::Reader& reader, const Path& folder,
                        Quantization quantization);
};

[[nodiscard]] std::span<const Format> formats();

/// The format of that name. Throws Error{usage}, which lists all names, for an unknown one.
[[nodiscard]] const Format& format_named(std::string_view name);

/// The names of the formats that can represent the model.
[[nodiscard]] std::vector<std::string> formats_for(const spec::Architecture& architecture);

}  // namespace argosy::interchange
