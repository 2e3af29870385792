#include "interchange/tensor_file.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <variant>

#include "core/error.hpp"
#include "core/piece_queue.hpp"
#include "interchange/sha256.hpp"

namespace argosy::interchange {

std::uint64_t Tensor::size_bytes() const {
  return std::accumulate(
      shape.begin(), shape.end(), std::uint64_t{size_of(dtype)},
      [](std::uint64_t product, std::int64_t extent) { return product * narrow<std::uint64_t>(extent); });
}

std::int64_t Tensor::row() const {
  return shape.size() < 2 ? 1 : std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>{});
}

std::vector<std::byte> Tensor::bytes() const {
  std::vector<std::byte> all(size_bytes());
  fill(0, all);
  return all;
}

std::function<void(std::int64_t first, MutableBytes to)> holding(std::vector<std::byte> bytes, DType dtype) {
  return [bytes = std::move(bytes), dtype](std::int64_t first, MutableBytes to) {
    const std::size_t begin = narrow<std::size_t>(first) * size_of(dtype);
    ARGOSY_CHECK(begin <= bytes.size() && to.size() <= bytes.size() - begin, "{} of {}", begin, bytes.size());
    std::ranges::copy(Bytes{bytes}.subspan(begin, to.size()), to.begin());
  };
}

namespace {

/// A text or a tensor of the file.
struct Part {
  std::uint64_t offset, size_bytes;
  std::variant<const std::vector<std::byte>*, const Tensor*> content;
};

std::vector<Part> parts_of(const TensorFile& file) {
  std::vector<Part> parts;
  parts.reserve(file.texts.size() + file.tensors.size());
  for (const auto& [offset, bytes] : file.texts) parts.push_back({offset, bytes.size(), &bytes});
  for (const auto& [offset, tensor] : file.tensors) parts.push_back({offset, tensor->size_bytes(), tensor});
  std::ranges::sort(parts, {}, [](const Part& part) { return std::pair{part.offset, part.size_bytes}; });
  std::uint64_t end = 0;
  for (const Part& part : parts) {
    ARGOSY_CHECK(part.offset == end, "a hole at {}", end);  // its digest is that of its parts, one after another
    end += part.size_bytes;
  }
  ARGOSY_CHECK(end == file.size_bytes, "{} of {} bytes", end, file.size_bytes);
  return parts;
}

/// Contiguous runs of about equal size: a part belongs to the rank its middle falls to.
int owner_of(const Part& part, std::uint64_t file_bytes, int ranks) {
  const std::uint64_t middle = part.offset + part.size_bytes / 2;
  const double share = static_cast<double>(middle) / static_cast<double>(file_bytes);
  return std::min(ranks - 1, static_cast<int>(share * ranks));
}

void put(PieceQueue& queue, const Part& part) {
  if (const auto* const text = std::get_if<const std::vector<std::byte>*>(&part.content)) {
    if (part.size_bytes == 0) return;
    std::ranges::copy(**text, queue.room(part.size_bytes).begin());
    return queue.put(part.offset);
  }
  constexpr std::int64_t piece_bytes = 8 << 20;
  const Tensor& tensor = *std::get<const Tensor*>(part.content);
  const auto element_size = static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::int64_t elements = narrow<std::int64_t>(part.size_bytes) / element_size, row = tensor.row();
  const std::int64_t most =
      row * std::max<std::int64_t>(1, piece_bytes / std::max<std::int64_t>(1, row * element_size));
  for (std::int64_t first = 0; first < elements; first += most) {
    tensor.fill(first, queue.room(narrow<std::size_t>(std::min(most, elements - first) * element_size)));
    queue.put(part.offset + narrow<std::uint64_t>(first * element_size));
  }
}

}  // namespace

void write_tensor_file(const comm::Communicator& world, const Files& files, const Path& path, const TensorFile& file,
                       Written& written) {
  comm::at_root(world, [&] {
    File made = files.create(path);
    made.reserve(file.size_bytes);
    made.close();
  });
  comm::agree(world, [&] {
    constexpr std::size_t pieces = 4;
    const bool alone = world.size() == 1;
    File own = files.update(path);
    Sha256 hash;
    std::vector<PieceQueue::Stage> stages{[&](std::uint64_t offset, Bytes bytes) {
      own.write_at(bytes, offset);
      own.start_writeback(offset, bytes.size());
    }};
    if (alone) stages.emplace_back([&](std::uint64_t, Bytes bytes) { hash.update(bytes); });
    PieceQueue queue{std::move(stages), pieces};
    for (const Part& part : parts_of(file))
      if (owner_of(part, file.size_bytes, world.size()) == world.rank()) put(queue, part);
    queue.finish();
    own.sync();
    own.close();
    if (alone) written.sums[path.filename().string()] = hash.hex();
  });
  written.bytes += file.size_bytes;
}

}  // namespace argosy::interchange
