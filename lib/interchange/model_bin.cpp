#include "interchange/model_bin.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.hpp"

namespace argosy::interchange {
namespace {

constexpr std::uint32_t format_version = 6;

std::uint8_t type_code(DType dtype) {
  constexpr std::array by_code{DType::f32, DType::i8, DType::i16, DType::i32, DType::f16, DType::bf16};
  const auto found = std::ranges::find(by_code, dtype);
  ARGOSY_CHECK(found != by_code.end(), "model.bin has no type for {}", name_of(dtype));
  return narrow<std::uint8_t>(found - by_code.begin());
}

class ByteString {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {  // u16 length with the NUL, bytes, NUL
    number(narrow<std::uint16_t>(value.size() + 1));
    bytes_.append(value.c_str(), value.size() + 1);
  }
  [[nodiscard]] Bytes bytes() const { return argosy::as_bytes(std::string_view{bytes_}); }

 private:
  std::string bytes_;
};

ByteString header_of(const Variable& variable) {
  ByteString header;
  header.text(variable.name);
  header.number(narrow<std::uint8_t>(variable.shape.size()));
  for (const std::uint32_t dimension : variable.shape) header.number(dimension);
  header.number(type_code(variable.dtype));
  header.number(narrow<std::uint32_t>(variable.size_bytes()));
  return header;
}

}  // namespace

std::uint64_t Variable::size_bytes() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{size_of(dtype)}, std::multiplies<std::uint64_t>{});
}

std::uint64_t write_model_bin(const comm::Communicator& world, const Files& files, const Path& path, ModelBin model) {
  std::sort(model.variables.begin(), model.variables.end(),
            [](const Variable& a, const Variable& b) { return a.name < b.name; });
  std::sort(model.aliases.begin(), model.aliases.end());
  for (const Variable& variable : model.variables) {
    if (variable.size_bytes() >= (1ULL << 32)) {
      throw_claim(Fault::usage,
                  fmt::format("{} has {} bytes, and a variable in {} must be smaller than 4 GiB", variable.name,
                              variable.size_bytes(), path.string()),
                  path.string(), "variables of less than 4 GiB",
                  fmt::format("{} of {} bytes", variable.name, variable.size_bytes()),
                  "use a smaller --quantization, such as int8");
    }
  }

  ByteString head, tail;
  head.number(format_version);
  head.text(model.spec);
  head.number(model.revision);
  head.number(narrow<std::uint32_t>(model.variables.size()));
  tail.number(narrow<std::uint32_t>(model.aliases.size()));
  for (const auto& [alias, target] : model.aliases) {
    tail.text(alias);
    tail.text(target);
  }
  std::vector<std::uint64_t> offsets;  // of each variable's header
  std::uint64_t end = head.bytes().size();
  for (const Variable& variable : model.variables) {
    offsets.push_back(end);
    end += header_of(variable).bytes().size() + variable.size_bytes();
  }
  const std::uint64_t size_bytes = end + tail.bytes().size();

  comm::agree(world, [&] {
    if (world.rank() != 0) return;
    File file = files.create(path);
    file.reserve(size_bytes);
    file.write_at(head.bytes(), 0);
    file.write_at(tail.bytes(), end);
    file.close();
  });
  comm::agree(world, [&] {
    File file = files.update(path);
    for (std::size_t i = 0; i < model.variables.size(); ++i) {
      // Contiguous runs of about equal size: variable i belongs to the rank its middle falls to.
      const auto middle = offsets[i] + model.variables[i].size_bytes() / 2;
      const double share = static_cast<double>(middle) / static_cast<double>(size_bytes);
      const int owner = std::min(world.size() - 1, static_cast<int>(share * world.size()));
      if (owner != world.rank()) continue;
      const ByteString header = header_of(model.variables[i]);
      const std::vector<std::byte> bytes = model.variables[i].bytes();
      ARGOSY_CHECK(bytes.size() == model.variables[i].size_bytes(), "{}: {} bytes", model.variables[i].name,
                   bytes.size());
      file.write_at(header.bytes(), offsets[i]);
      file.write_at(bytes, offsets[i] + header.bytes().size());
    }
    file.sync();
    file.close();
  });
  return size_bytes;
}

}  // namespace argosy::interchange
