#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "interchange/tensor_file.hpp"

/// safetensors files (FORMAT.md): a JSON header with names, types, shapes and places, then the tensors.
namespace argosy::interchange {

/// Writes `folder`/model.safetensors. If the tensors have more than `max_shard_bytes`, they go in their order into
/// model-00001-of-0000N.safetensors …, which model.safetensors.index.json lists; a larger tensor has a file of its own.
/// stem: the beginning of these names in place of "model". The bytes do not depend on the number of ranks.
/// **Collective** over `world`. Throws Error{io}, and what `fill` of a tensor throws.
Written write_safetensors(const comm::Communicator& world, const Files& files, const Path& folder,
                          const std::vector<Tensor>& tensors, std::uint64_t max_shard_bytes,
                          const std::string& stem = "model");

/// The tensors of a folder with model.safetensors, or with model.safetensors.index.json and the files that it lists;
/// stem: the beginning of these names in place of "model".
class Safetensors {
 public:
  struct Entry {
    std::string type;                 // as the header spells it: "F32", "BF16" …
    std::vector<std::int64_t> shape;  // empty: a scalar
    std::size_t file = 0;             // index
    std::uint64_t begin = 0;          // of its first byte within the file
    [[nodiscard]] std::int64_t elements() const noexcept;
  };

  /// Reads all headers and checks every rule of the format before anything of that size is allocated. Not collective.
  /// Throws Error{data} when the folder has no such file, Error{corrupt}, which names the file and the rule that it
  /// breaks, Error{io}.
  Safetensors(const Files& files, const Path& folder, const std::string& stem = "model");

  [[nodiscard]] const std::map<std::string, Entry, std::less<>>& tensors() const noexcept { return tensors_; }
  /// Of the headers, in the order of the files' names: names, types, shapes and places.
  [[nodiscard]] const Digest& digest() const noexcept { return digest_; }
  /// Reads elements [begin, begin + to.size()) of a tensor of type F32, F16 or BF16 as fp32. Throws Error{data} for
  /// another type, Error{corrupt} when the file has become shorter, Error{io}.
  void read(const std::string& name, std::int64_t begin, std::span<float> to) const;

 private:
  void add(const Path& path, Hasher& hasher);

  Files files_;
  std::vector<Path> paths_;
  std::map<std::string, Entry, std::less<>> tensors_;
  Digest digest_;
};

/// A parameter as tensors that follow one another.
struct ParameterRange {
  std::string tensor;
  std::int64_t begin = 0, elements = 0;  // within the parameter
};
/// Fills `to` with the elements from `begin` on as far as the ranges have them; the others stay as they are. Throws as
/// Safetensors::read().
void read_ranges(const Safetensors& tensors, const std::vector<ParameterRange>& ranges, std::int64_t begin,
                 std::span<float> to);

}  // namespace argosy::interchange
