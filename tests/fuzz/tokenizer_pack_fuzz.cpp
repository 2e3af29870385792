#include <stdexcept>

#include "data/tokenizer_pack.hpp"
#include "fuzz/fuzz.hpp"

/// Several tokenizers in one file: what is taken from it fits in again.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  const std::string_view bytes = test::text_of(data, size);
  test::refuses_or_takes([&] {
    const data::TokenizerPack several = data::unpack_several(bytes, "input");
    std::size_t sum = 0;
    for (const auto& [part, file] : several.files) sum += file.size();
    if (sum > size) throw std::runtime_error("more bytes than the file has");
    const std::string again = data::pack_several(several);
    const data::TokenizerPack same = data::unpack_several(again, "input");
    if (same.files != several.files || same.by_language != several.by_language)
      throw std::runtime_error("another file after it is written again");
  });
  return 0;
}
