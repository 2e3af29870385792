#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
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

// Converts fp32 weights to the element types of variables.

/// `values` as `dtype` (f32, bf16, f16), rounded to nearest even. Throws Error{numeric}, which names `name`, when f16
/// cannot hold a value.
[[nodiscard]] std::vector<std::byte> as_floats(std::span<const float> values, DType dtype, std::string_view name);

/// Rows as int8 with one scale per row: scale = 127/max|w| (1 for a zero row), q = round-half-even(w·scale).
struct Int8Rows {
  std::vector<std::byte> codes;   // [rows, columns]
  std::vector<std::byte> scales;  // f32 [rows]
};
[[nodiscard]] Int8Rows as_int8_rows(std::span<const float> values, std::size_t rows);

[[nodiscard]] std::uint16_t f16_from_f32(float value) noexcept;  // IEEE 754 binary16, round to nearest even

}  // namespace argosy::interchange
