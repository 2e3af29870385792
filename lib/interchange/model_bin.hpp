#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "interchange/tensor_file.hpp"

/// CTranslate2's binary model format, version 6 (FORMAT.md). ctranslate2.cpp decides which variables a model has.
namespace argosy::interchange {

struct ModelBin {
  std::string spec;  // "TransformerSpec", "TransformerDecoderSpec"
  std::uint32_t revision = 0;
  std::vector<Tensor> variables;                             // f32 f16 bf16 i8 i16 i32
  std::vector<std::pair<std::string, std::string>> aliases;  // alias, target
};

/// Writes and fsyncs `path`, with the variables sorted by name. The bytes do not depend on the number of ranks. Returns
/// the size of the file.
/// **Collective** over `world`. Throws Error{usage} for a variable of 4 GiB or more (the format's limit), Error{io}.
std::uint64_t write_model_bin(const comm::Communicator& world, const Files& files, const Path& path, ModelBin model);

}  // namespace argosy::interchange
