#include "core/bytes.hpp"

#include <array>

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

}  // namespace argosy
