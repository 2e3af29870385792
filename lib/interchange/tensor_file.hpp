#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.hpp"
#include "core/bytes.hpp"
#include "core/file.hpp"

/// Files of named tensors whose sizes are all known before any weight is read, so that each rank writes its tensors
/// directly to their places. model_bin.hpp and safetensors.hpp say which places.
namespace argosy::interchange {

/// A tensor to be written. `bytes` is called once, on the rank that writes it, and returns size_bytes() bytes.
struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  std::function<std::vector<std::byte>()> bytes;

  [[nodiscard]] std::uint64_t size_bytes() const;
};

struct TensorFile {
  std::uint64_t size_bytes = 0;
  std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> texts;  // offset, what stands there between tensors
  std::vector<std::pair<std::uint64_t, const Tensor*>> tensors;         // offset, in ascending order
};

/// Writes and fsyncs `path`. A rank holds one tensor at a time. The bytes do not depend on the number of ranks.
/// **Collective** over `world`. Throws Error{io}, and what `bytes` of a tensor throws.
void write_tensor_file(const comm::Communicator& world, const Files& files, const Path& path, const TensorFile& file);

}  // namespace argosy::interchange
