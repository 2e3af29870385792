#include "interchange/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "config/config.hpp"
#include "core/error.hpp"
#include "interchange/convert.hpp"

namespace argosy::interchange {
namespace {

const char* type_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    default:
      ARGOSY_CHECK(false, "safetensors of {}", name_of(dtype));
  }
}

using Shard = std::vector<const Tensor*>;

std::vector<Shard> shards_of(const std::vector<Tensor>& tensors, std::uint64_t most_bytes) {
  std::vector<Shard> shards(1);
  std::uint64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.size_bytes() > most_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(&tensor);
    bytes += tensor.size_bytes();
  }
  return shards;
}

/// Its tensors sorted, each at a multiple of the size of its elements.
TensorFile file_of(Shard shard) {
  std::ranges::sort(shard, [](const Tensor* a, const Tensor* b) {
    return std::pair{size_of(b->dtype), std::string_view{a->name}} <
           std::pair{size_of(a->dtype), std::string_view{b->name}};
  });
  boost::json::object header{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t end = 0;
  for (const Tensor* tensor : shard) {
    const std::uint64_t begin = std::exchange(end, end + tensor->size_bytes());
    header[tensor->name] = {{"dtype", type_name(tensor->dtype)},
                            {"shape", boost::json::value_from(tensor->shape)},
                            {"data_offsets", {begin, end}}};
  }
  std::string text = boost::json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::vector<std::byte> head;
  append(head, std::uint64_t{text.size()});
  const Bytes bytes = argosy::as_bytes(std::string_view{text});
  head.insert(head.end(), bytes.begin(), bytes.end());
  TensorFile file;
  std::uint64_t at = head.size();
  file.size_bytes = at + end;
  file.texts.emplace_back(0, std::move(head));
  for (const Tensor* tensor : shard) file.tensors.emplace_back(std::exchange(at, at + tensor->size_bytes()), tensor);
  return file;
}

}  // namespace

Written write_safetensors(const comm::Communicator& world, const Files& files, const Path& folder,
                          const std::vector<Tensor>& tensors, std::uint64_t max_shard_bytes, const std::string& stem) {
  const std::vector<Shard> shards = shards_of(tensors, max_shard_bytes);
  Written written;
  std::uint64_t tensor_bytes = 0;
  boost::json::object places;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? stem + ".safetensors"
                                 : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size());
    for (const Tensor* tensor : shards[i]) {
      places[tensor->name] = name;
      tensor_bytes += tensor->size_bytes();
    }
    write_tensor_file(world, files, folder / name, file_of(shards[i]), written);
  }
  if (shards.size() > 1) {
    const boost::json::object index{{"metadata", {{"total_size", tensor_bytes}}}, {"weight_map", std::move(places)}};
    comm::at_root(world, [&] {
      files.write_atomically(folder / (stem + ".safetensors.index.json"), config::text_of(index) + "\n");
    });
  }
  return written;
}

}  // namespace argosy::interchange
