#include <stdexcept>

#include "fuzz/fuzz.hpp"
#include "tokenizer/pipeline.hpp"

/// A tokenizer.json, a zero byte, and a text for it: its ids are ids, and every id has a text.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  std::string_view json = test::text_of(data, size), text = json;
  const std::size_t cut = json.find('\0');
  if (cut != json.npos) json = json.substr(0, cut);
  if (cut != text.npos) text = text.substr(cut + 1);
  test::refuses_or_takes([&] {
    const auto pipeline = tokenizer::Pipeline::load(json, "input");
    std::vector<std::int32_t> all;
    for (std::int32_t id = 0; id < pipeline.size(); ++id) {
      all.push_back(id);
      static_cast<void>(pipeline.score(id));
      if (!pipeline.id_of(pipeline.piece(id))) throw std::runtime_error("a piece without an id");
    }
    test::refuses_or_takes([&] { static_cast<void>(pipeline.decode(all)); });
    for (const std::string_view each : {text, text.substr(0, 100)}) {
      const auto ids = pipeline.encode(each);
      for (const std::int32_t id : ids)
        if (id < 0 || id >= pipeline.size()) throw std::runtime_error("an id that is none");
      static_cast<void>(pipeline.decode(ids));
    }
  });
  return 0;
}
