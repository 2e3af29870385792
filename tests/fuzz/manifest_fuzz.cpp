#include "checkpoint/manifest.hpp"
#include "fuzz/fuzz.hpp"

/// MANIFEST.json: as it is, and with the digest that fits, so that what lies behind the digest is reached. What is
/// taken is written as a manifest that is taken again.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  const std::string body{test::text_of(data, size)};
  test::refuses_or_takes([&] { static_cast<void>(checkpoint::parse_manifest(body, "input")); });
  test::refuses_or_takes([&] {
    const auto parsed = checkpoint::parse_manifest(checkpoint::with_self_digest(body), "input");
    static_cast<void>(parsed.manifest.identity(parsed.manifest.world() - 1));
    const std::string again = checkpoint::text_of(parsed.manifest);
    try {
      static_cast<void>(checkpoint::parse_manifest(again, "output"));
    } catch (const Error& error) {
      throw std::runtime_error(again + "\nis refused: " + error.what());
    }
  });
  return 0;
}
