#pragma once

#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "support/checkpoints.hpp"
#include "support/json_numbers.hpp"

/// Manifests with one number replaced and the digests made right again: what no accident does, and what a reader must
/// not believe all the same.
namespace argosy::test {

/// Puts a manifest with each number of its own set to each of some values in its place, one after the other, and calls
/// `use`, which may refuse it with an error of the right kind or take it. Leaves the manifest as it was.
template <class Use>
void forge_numbers(const Path& directory, const Use& use) {
  const Files files = Files::system();
  const Path path = directory / checkpoint::manifest_name;
  const std::string text = files.read_text(path);
  const boost::json::value whole(checkpoint::parse_manifest(text, path.string()).document);
  const std::vector<std::string> pointers = numbers_of(whole);
  EXPECT_GT(pointers.size(), 20U);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const boost::json::value values[] = {-1,   0,     1LL << 31, (1LL << 32) + 1, 999'999'999'999'999'999,
                                       most, 1e308, -0.5,      "nan",           "inf"};
  for (const std::string& pointer : pointers) {
    for (const boost::json::value& value : values) {
      boost::json::value forged = whole;
      boost::json::error_code none;
      *forged.find_pointer(pointer, none) = value;
      boost::json::object& bits = forged.as_object()["float_bits"].as_object();
      bits.erase(pointer);
      if (value.is_string()) bits[pointer] = value == "nan" ? "7ff8000000000000" : "7ff0000000000000";
      files.publish(path, sealed(forged.as_object()));
      const std::string what = pointer + " = " + boost::json::serialize(value);
      try {
        use();
      } catch (const Error& error) {
        EXPECT_NE(error.fault(), Fault::internal) << what << ": " << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": " << error.what();
      }
    }
  }
  files.publish(path, text);
}

}  // namespace argosy::test
