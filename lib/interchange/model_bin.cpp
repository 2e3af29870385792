#include "interchange/model_bin.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
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

template <class T>
void append(std::vector<std::byte>& to, T value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// u16 length with the NUL, bytes, NUL.
void append_text(std::vector<std::byte>& to, const std::string& text) {
  append(to, narrow<std::uint16_t>(text.size() + 1));
  const Bytes bytes = argosy::as_bytes(std::string_view{text.c_str(), text.size() + 1});
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> header_of(const Variable& variable) {
  std::vector<std::byte> header;
  append_text(header, variable.name);
  append(header, narrow<std::uint8_t>(variable.shape.size()));
  for (const std::uint32_t dimension : variable.shape) append(header, dimension);
  append(header, type_code(variable.dtype));
  append(header, narrow<std::uint32_t>(variable.size_bytes()));
  return header;
}

}  // namespace

std::uint64_t Variable::size_bytes() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{size_of(dtype)}, std::multiplies<std::uint64_t>{});
}

std::uint64_t write_model_bin(const comm::Communicator& world, const Files& files, const Path& path, ModelBin model) {
  std::ranges::sort(model.variables, {}, &Variable::name);
  std::ranges::sort(model.aliases);
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
  std::vector<std::uint64_t> offsets;  // of each variable's header
  std::uint64_t end = head.size();
  for (const Variable& variable : model.variables) {
    offsets.push_back(end);
    end += header_of(variable).size() + variable.size_bytes();
  }
  const std::uint64_t size_bytes = end + tail.size();

  comm::at_root(world, [&] {
    File file = files.create(path);
    file.reserve(size_bytes);
    file.write_at(head, 0);
    file.write_at(tail, end);
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
      const std::vector<std::byte> header = header_of(model.variables[i]);
      const std::vector<std::byte> bytes = model.variables[i].bytes();
      ARGOSY_CHECK(bytes.size() == model.variables[i].size_bytes(), "{}: {} bytes", model.variables[i].name,
                   bytes.size());
      file.write_at(header, offsets[i]);
      file.write_at(bytes, offsets[i] + header.size());
    }
    file.sync();
    file.close();
  });
  return size_bytes;
}

std::uint16_t f16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and above round to infinity
  if (magnitude < 0x38800000U) {  // subnormal: adding 0.5 leaves round(value · 2^24) in the low mantissa bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

std::vector<std::byte> as_floats(std::span<const float> values, DType dtype, std::string_view name) {
  std::vector<std::byte> out;
  if (dtype == DType::f32) {
    const Bytes bytes = std::as_bytes(values);
    out.assign(bytes.begin(), bytes.end());
    return out;
  }
  out.reserve(values.size() * 2);
  for (const float value : values) {
    if (dtype == DType::bf16) {
      append(out, bf16_from_f32(value));
      continue;
    }
    if (std::abs(value) > 65504.0F) {
      throw_claim(Fault::numeric, fmt::format("{}: float16 cannot hold the weight {}", name, value), std::string{name},
                  "weights of at most 65504 in magnitude, the range of float16", fmt::format("{}", value),
                  "use --quantization bfloat16");
    }
    append(out, f16_from_f32(value));
  }
  return out;
}

Int8Rows as_int8_rows(std::span<const float> values, std::size_t rows) {
  const std::size_t columns = values.size() / rows;
  Int8Rows out;
  out.codes.resize(values.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const float> row = values.subspan(r * columns, columns);
    float largest = 0.0F;
    for (const float value : row) largest = std::max(largest, std::abs(value));
    const float scale = largest == 0.0F ? 1.0F : 127.0F / std::max(largest, 127.0F / FLT_MAX);
    for (std::size_t c = 0; c < columns; ++c) {
      out.codes[r * columns + c] = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(row[c] * scale)));
    }
    append(out.scales, scale);
  }
  return out;
}

}  // namespace argosy::interchange
