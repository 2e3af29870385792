#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.hpp"
#include "core/bytes.hpp"
#include "core/file.hpp"

/// CTranslate2's binary model format, version 6 (FORMAT.md). All sizes are known before any weight is read, so each
/// rank writes its variables directly to their places in the file. ctranslate2.cpp decides which variables a model has.
namespace argosy::interchange {

/// One variable. `bytes` is called once, on the rank that writes it, and returns product(shape) · size_of(dtype) bytes.
struct Variable {
  std::string name;
  DType dtype = DType::f32;          // f32 f16 bf16 i8 i16 i32
  std::vector<std::uint32_t> shape;  // empty: a scalar
  std::function<std::vector<std::byte>()> bytes;

  [[nodiscard]] std::uint64_t size_bytes() const;
};

struct ModelBin {
  std::string spec;  // "TransformerSpec", "TransformerDecoderSpec"
  std::uint32_t revision = 0;
  std::vector<Variable> variables;
  std::vector<std::pair<std::string, std::string>> aliases;  // alias, target
};

/// Writes and fsyncs `path`, with the variables sorted by name. The bytes do not depend on the number of ranks. Returns
/// the size of the file.
/// **Collective** over `world`. Throws Error{usage} for a variable of 4 GiB or more (the format's limit), Error{io}.
std::uint64_t write_model_bin(const comm::Communicator& world, const Files& files, const Path& path, ModelBin model);

}  // namespace argosy::interchange
