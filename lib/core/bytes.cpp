#include "core/bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace argosy {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array<DTypeFacts, 12> dtypes{{{"f32", 4},
                                             {"bf16", 2},
                                             {"f16", 2},
                                             {"f64", 8},
                                             {"i8", 1},
                                             {"i16", 2},
                                             {"i32", 4},
                                             {"i64", 8},
                                             {"u8", 1},
                                             {"u16", 2},
                                             {"u32", 4},
                                             {"u64", 8}}};
static_assert(dtypes.size() == static_cast<std::size_t>(DType::u64) + 1);

}  // namespace

std::size_t size_of(DType dtype) noexcept { return dtypes[static_cast<std::size_t>(dtype)].size_bytes; }

std::string_view name_of(DType dtype) noexcept { return dtypes[static_cast<std::size_t>(dtype)].name; }

DType dtype_of(std::string_view name) {
  const auto found = std::find_if(dtypes.begin(), dtypes.end(), [name](const DTypeFacts& f) { return f.name == name; });
  if (found != dtypes.end()) return static_cast<DType>(found - dtypes.begin());
  std::string names;
  for (const DTypeFacts& facts : dtypes) names += (names.empty() ? "" : " | ") + std::string(facts.name);
  throw Error{Fault::data, {.wanted = "an element type (" + names + ")", .got = fmt::format("\"{}\"", name)}};
}

}  // namespace argosy
