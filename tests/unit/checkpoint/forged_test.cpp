#include <gtest/gtest.h>

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
