#pragma once

#include <boost/describe.hpp>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "comm/run_main.hpp"

/// A committed checkpoint or soup as a CTranslate2 model folder: model.bin, config.json, vocabulary, the SentencePiece
/// model and SHA256SUMS. Written without Python; the folder appears under its name only when it is complete. FORMAT.md
/// has the tables.
namespace argosy::exports {

enum class Quantization { float32, float16, bfloat16, int8 };
BOOST_DESCRIBE_ENUM(Quantization, float32, float16, bfloat16, int8)

struct ExportReport {
  Path folder;
  std::uint64_t bytes = 0;      // of model.bin
  std::int64_t parameters = 0;  // elements, tied once, dead rows cut
  double seconds = 0;
};

/// Throws Error{usage} when `folder` exists or the model has no CTranslate2 form (naming the key that forbids it),
/// Error{data} when the vocabulary holds a piece twice. Byte-identical for any number of ranks. **Collective**.
ExportReport export_ctranslate2(comm::Context& context, const checkpoint::Reader& reader, const Path& folder,
                                Quantization quantization);

}  // namespace argosy::exports
