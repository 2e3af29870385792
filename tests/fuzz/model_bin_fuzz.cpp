#include <string>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "interchange/model_bin.hpp"
#include "support/temp_folder.hpp"

namespace argosy::interchange {
namespace {

/// Opens the file and reads every variable, to its last element.
void read_variables(const Path& path) {
  const ModelBinFile file{Files::system(), path};
  for (const auto& [name, variable] : file.variables()) {
    std::vector<float> values(static_cast<std::size_t>(variable.elements()));
    file.read(variable, 0, values);
    (void)file.bytes(variable);
  }
  for (const auto& [alias, target] : file.aliases()) {
    if (file.find(alias) != file.find(target)) __builtin_trap();
  }
}

}  // namespace
}  // namespace argosy::interchange

/// A model.bin.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  static const test::TempFolder folder;
  File file = Files::system().replace(folder / "model.bin");
  file.write_at(as_bytes(test::text_of(data, size)), 0);
  file.close();
  test::refuses_or_takes([] { interchange::read_variables(folder / "model.bin"); });
  return 0;
}
