#include "interchange/tensor_file.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.hpp"

namespace argosy::interchange {

std::uint64_t Tensor::size_bytes() const {
  return std::accumulate(
      shape.begin(), shape.end(), std::uint64_t{size_of(dtype)},
      [](std::uint64_t product, std::int64_t extent) { return product * narrow<std::uint64_t>(extent); });
}

void write_tensor_file(const comm::Communicator& world, const Files& files, const Path& path, const TensorFile& file) {
  comm::at_root(world, [&] {
    File made = files.create(path);
    made.reserve(file.size_bytes);
    for (const auto& [offset, bytes] : file.texts) made.write_at(bytes, offset);
    made.close();
  });
  comm::agree(world, [&] {
    File own = files.update(path);
    for (const auto& [offset, tensor] : file.tensors) {
      // Contiguous runs of about equal size: a tensor belongs to the rank its middle falls to.
      const auto middle = offset + tensor->size_bytes() / 2;
      const double share = static_cast<double>(middle) / static_cast<double>(file.size_bytes);
      const int owner = std::min(world.size() - 1, static_cast<int>(share * world.size()));
      if (owner != world.rank()) continue;
      const std::vector<std::byte> bytes = tensor->bytes();
      ARGOSY_CHECK(bytes.size() == tensor->size_bytes(), "{}: {} bytes", tensor->name, bytes.size());
      own.write_at(bytes, offset);
      own.start_writeback(offset, bytes.size());
    }
    own.sync();
    own.close();
  });
}

}  // namespace argosy::interchange
