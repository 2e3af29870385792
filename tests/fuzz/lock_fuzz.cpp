#include <stdexcept>

#include "core/owner.hpp"
#include "fuzz/fuzz.hpp"

/// The line of a lease: damaged, or an owner that is read again as it was written.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  test::refuses_or_takes([&] {
    const auto owner = Owner::parse(std::string{test::text_of(data, size)});
    if (!owner) return;
    const auto again = Owner::parse(owner->text());
    if (!again || again->host != owner->host || again->pid != owner->pid || again->nonce != owner->nonce)
      throw std::runtime_error("an owner is read otherwise than it is written: " + owner->text());
  });
  return 0;
}
