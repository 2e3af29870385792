#include <hdf5.h>

#include <limits>

#include "load_fixture.hpp"
#include "support/forged_numbers.hpp"

namespace argosy::checkpoint {
namespace {

using ForgedTest = LoadTest;

TEST_F(ForgedTest, NumbersAreRefusedOrHarmless) {
  prepare({1, 2});
  test::forge_numbers(at(2), [&] {
    const Reader reader{Files::system(), at(2)};
    reader.verify();
    for (const Reader::Parameter& parameter : reader.parameters())
      static_cast<void>(reader.read_parameter(parameter.name));
    test::Toy got = toy();
    reader.read_state(got.states(), 0);
  });
}

TEST_F(ForgedTest, NumbersOfAShardsAttributesAreRefused) {
  prepare({1});
  const Path shard = at(1) / shard_name(0, 1);
  /// Puts `value` there, and gives what was there.
  const auto exchange = [&](const char* name, std::int64_t value) {
    std::int64_t before = 0;
    const hid_t file = H5Fopen(shard.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), number = H5Aopen(file, name, H5P_DEFAULT);
    EXPECT_GE(H5Aread(number, H5T_NATIVE_INT64, &before), 0) << name;
    EXPECT_GE(H5Awrite(number, H5T_NATIVE_INT64, &value), 0) << name;
    H5Aclose(number);
    H5Fclose(file);
    return before;
  };
  for (const char* name : {"format_major", "step", "rank", "world"}) {  // any format_minor may be read
    for (const std::int64_t value :
         {std::int64_t{-1}, std::int64_t{7}, std::int64_t{1} << 31, std::numeric_limits<std::int64_t>::max()}) {
      const std::int64_t own = exchange(name, value);
      const std::string said = test::refusal(Fault::corrupt, [&] { Reader(Files::system(), at(1)).verify(); });
      EXPECT_TRUE(test::says(said, name)) << value;
      EXPECT_EQ(exchange(name, own), value);
    }
  }
  EXPECT_EQ(load(), 1);
}

TEST_F(ForgedTest, WhatTheCallerFindsDamagedIsPassedOver) {
  prepare({1, 2});
  const auto check = [](const Reader& reader) {
    if (reader.step() == 2) throw Error{Fault::corrupt, {.wanted = "a number", .got = "none"}};
  };
  EXPECT_EQ(load({.check = check}), 1);
  EXPECT_EQ(names(), (Names{".bad-000000002-content", "000000001"}));
}

}  // namespace
}  // namespace argosy::checkpoint
