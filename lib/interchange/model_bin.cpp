#include "interchange/model_bin.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "interchange/convert.hpp"

namespace argosy::interchange {
namespace {

constexpr std::uint32_t format_version = 6;

std::uint8_t type_code(DType dtype) {
  constexpr std::array by_code{DType::f32, DType::i8, DType::i16, DType::i32, DType::f16, DType::bf16};
  const auto found = std::ranges::find(by_code, dtype);
  ARGOSY_CHECK(found != by_code.end(), "model.bin has no type for {}", name_of(dtype));
  return narrow<std::uint8_t>(found - by_code.begin());
}

/// u16 length with the NUL, bytes, NUL.
void append_text(std::vector<std::byte>& to, const std::string& text) {
  append(to, narrow<std::uint16_t>(text.size() + 1));
  const Bytes bytes = argosy::as_bytes(std::string_view{text.c_str(), text.size() + 1});
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> header_of(const Tensor& variable) {
  std::vector<std::byte> header;
  append_text(header, variable.name);
  append(header, narrow<std::uint8_t>(variable.shape.size()));
  for (const std::int64_t extent : variable.shape) append(header, narrow<std::uint32_t>(extent));
  append(header, type_code(variable.dtype));
  append(header, narrow<std::uint32_t>(variable.size_bytes()));
  return header;
}

}  // namespace

Written write_model_bin(const comm::Communicator& world, const Files& files, const Path& path, ModelBin model) {
  std::ranges::sort(model.variables, {}, &Tensor::name);
  std::ranges::sort(model.aliases);
  for (const Tensor& variable : model.variables) {
    if (variable.size_bytes() >= (1ULL << 32)) {
      throw_claim(Fault::usage,
                  fmt::format("{} has {} bytes, and a variable in {} must be smaller than 4 GiB", variable.name,
                              variable.size_bytes(), path.string()),
                  path.string(), "variables of less than 4 GiB",
                  fmt::format("{} of {} bytes", variable.name, variable.size_bytes()),
                  "use a smaller --quantization, such as int8");
    }
  }

  std::vector<std::byte> head, tail;
  append(head, format_version);
  append_text(head, model.spec);
  append(head, model.revision);
  append(head, narrow<std::uint32_t>(model.variables.size()));
  append(tail, narrow<std::uint32_t>(model.aliases.size()));
  for (const auto& [alias, target] : model.aliases) {
    append_text(tail, alias);
    append_text(tail, target);
  }
  TensorFile file;
  std::uint64_t end = head.size();
  file.texts.emplace_back(0, std::move(head));
  for (const Tensor& variable : model.variables) {
    std::vector<std::byte> header = header_of(variable);
    const std::uint64_t begin = end + header.size();
    file.texts.emplace_back(end, std::move(header));
    file.tensors.emplace_back(begin, &variable);
    end = begin + variable.size_bytes();
  }
  file.size_bytes = end + tail.size();
  file.texts.emplace_back(end, std::move(tail));
  Written written;
  write_tensor_file(world, files, path, file, written);
  return written;
}

}  // namespace argosy::interchange
