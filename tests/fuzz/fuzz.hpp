#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.hpp"

/// What fuzz targets share. libFuzzer calls LLVMFuzzerTestOneInput with inputs that reach new code; sanitizers, the
/// limits of scripts/fuzz on time and memory, and exceptions that nobody catches are findings.
namespace argosy::test {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `read`, which may refuse what it reads by any Error but one that calls it a defect of our own.
template <class Read>
void refuses_or_takes(Read read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.fault() == Fault::internal) throw;
  }
}

}  // namespace argosy::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
