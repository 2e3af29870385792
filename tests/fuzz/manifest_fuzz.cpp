#include "checkpoint/manifest.hpp"
#include "fuzz/fuzz.hpp"

/// MANIFEST.json: as it is, and with the digest that fits, so that what lies behind the digest is reached. What is
/// taken is written as a manifest that is taken again.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  const std::string body{test::text_of(data, size)};
  test::refuses_or_takes([&] { static_cast<void>(checkpoint::parse_manifest(body, "input")); });
  test::refuses_or_takes([&] {
    const auto parsed = [&] {
      try {
        return checkpoint::parse_manifest(checkpoint::with_self_digest(body), "input");
      } catch (const Error& error) {
        if (error.fault() == Fault::corrupt || error.fault() == Fault::usage) throw;
        throw std::runtime_error(std::string("a manifest is no reason for: ") + error.what());
      }
    }();
    if (parsed.manifest.world() > 1 << 20) throw std::runtime_error("more ranks than a manifest may have");
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
