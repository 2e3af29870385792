#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.hpp"
#include "core/bytes.hpp"
#include "core/file.hpp"

/// Files of named tensors whose sizes are all known before any weight is read, so that each rank writes its tensors
/// directly to their places. model_bin.hpp and safetensors.hpp say which places.
namespace argosy::interchange {

/// A tensor to be written.
struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  /// Fills `to` with the elements from `first` on: whole rows, where a matrix has such. One thread.
  std::function<void(std::int64_t first, MutableBytes to)> fill;

  [[nodiscard]] std::uint64_t size_bytes() const;
  /// Elements of a row: what is written is a number of them.
  [[nodiscard]] std::int64_t row() const;
  /// All of it.
  [[nodiscard]] std::vector<std::byte> bytes() const;
};

/// For `fill`: these bytes are the tensor.
[[nodiscard]] std::function<void(std::int64_t first, MutableBytes to)> holding(std::vector<std::byte> bytes,
                                                                               DType dtype);

struct TensorFile {
  std::uint64_t size_bytes = 0;
  std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> texts;  // offset, what stands there between tensors
  std::vector<std::pair<std::uint64_t, const Tensor*>> tensors;         // offset; with the texts they fill the file
};

/// What was written: its size, and the SHA-256 of each file, by name, that one rank has written alone.
struct Written {
  std::uint64_t bytes = 0;
  std::map<std::string, std::string> sums{};
};

/// Writes and fsyncs `path`, and adds it to `written`. Rows are read while earlier ones are written and hashed, in two
/// threads; a rank holds some 32 MiB, or four rows if these are longer. The bytes do not depend on the number of ranks.
/// **Collective** over `world`. Throws Error{io}, and what `fill` of a tensor throws.
void write_tensor_file(const comm::Communicator& world, const Files& files, const Path& path, const TensorFile& file,
                       Written& written);

}  // namespace argosy::interchange
