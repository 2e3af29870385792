#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "interchange/tensor_file.hpp"

/// CTranslate2's binary model format, version 6 (FORMAT.md). ctranslate2.cpp decides which variables a model has.
namespace argosy::interchange {

struct ModelBin {
  std::string spec;  // "TransformerSpec", "TransformerDecoderSpec"
  std::uint32_t revision = 0;
  std::vector<Tensor> variables;                             // f32 f16 bf16 i8 i16 i32
  std::vector<std::pair<std::string, std::string>> aliases;  // alias, target
};

/// Writes and fsyncs `path`, with the variables sorted by name. The bytes do not depend on the number of ranks.
/// **Collective** over `world`. Throws Error{usage} for a variable of 4 GiB or more (the format's limit), Error{io}.
Written write_model_bin(const comm::Communicator& world, const Files& files, const Path& path, ModelBin model);

/// The variables of such a file, of any version up to 6, as CTranslate2's converters and write_model_bin() write it.
class ModelBinFile {
 public:
  struct Variable {
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;  // empty: a scalar
    std::uint64_t begin = 0;          // of its first byte within the file
    [[nodiscard]] std::int64_t elements() const noexcept;
  };

  /// Reads all names, types and shapes, and checks every rule of the format before anything of that size is allocated.
  /// Not collective. Throws Error{data} when there is no such file, Error{usage} for a newer version, Error{corrupt},
  /// which names the file and the rule that it breaks, Error{io}.
  ModelBinFile(const Files& files, Path path);

  [[nodiscard]] const std::string& spec() const noexcept { return spec_; }  // empty in version 1
  [[nodiscard]] std::uint32_t revision() const noexcept { return revision_; }
  [[nodiscard]] const std::map<std::string, Variable, std::less<>>& variables() const noexcept { return variables_; }
  /// The variable that each alias stands for.
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& aliases() const noexcept { return aliases_; }
  /// The variable of that name or alias; null if there is none.
  [[nodiscard]] const Variable* find(std::string_view name) const noexcept;
  /// Of everything but the variables' values.
  [[nodiscard]] const Digest& digest() const noexcept { return digest_; }
  [[nodiscard]] const Path& path() const noexcept { return path_; }
  /// All bytes of a variable. Throws Error{corrupt} when the file has become shorter, Error{io}.
  [[nodiscard]] std::vector<std::byte> bytes(const Variable& variable) const;
  /// Elements [begin, begin + to.size()) of a variable of f32, f16, bf16, or of integers as they are. Throws as
  /// bytes().
  void read(const Variable& variable, std::int64_t begin, std::span<float> to) const;

 private:
  Files files_;
  Path path_;
  std::string spec_;
  std::uint32_t revision_ = 1;
  std::map<std::string, Variable, std::less<>> variables_;
  std::map<std::string, std::string, std::less<>> aliases_;
  Digest digest_;
};

}  // namespace argosy::interchange
