#include <cstring>
#include <string>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "interchange/safetensors.hpp"
#include "support/temp_folder.hpp"

namespace argosy::interchange {
namespace {

/// Opens the folder and reads every tensor, to its last element.
void read_all(const Path& folder) {
  const Safetensors tensors{Files::system(), folder};
  for (const auto& [name, entry] : tensors.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(entry.elements()));
    test::refuses_or_takes([&] { tensors.read(name, 0, values); });
  }
}

void put(const Path& path, std::string_view content) {
  File file = Files::system().replace(path);
  file.write_at(as_bytes(content), 0);
  file.close();
}

}  // namespace
}  // namespace argosy::interchange

/// A safetensors file: as it is; as a header of the right size, with a few bytes of tensors after it; and as an index.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  static const test::TempFolder folder, indexed;
  const std::string_view input = test::text_of(data, size);
  const Path file = folder / "model.safetensors";
  interchange::put(file, input);
  test::refuses_or_takes([] { interchange::read_all(folder.path()); });
  std::string whole(sizeof(std::uint64_t), '\0');
  const std::uint64_t header_bytes = size;
  std::memcpy(whole.data(), &header_bytes, sizeof header_bytes);
  whole += input;
  interchange::put(file, whole + std::string(16, '\x3f'));
  test::refuses_or_takes([] { interchange::read_all(folder.path()); });
  interchange::put(indexed / "a.safetensors", whole);
  interchange::put(indexed / "model.safetensors.index.json", input);
  test::refuses_or_takes([] { interchange::read_all(indexed.path()); });
  return 0;
}
