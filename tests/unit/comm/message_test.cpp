#include "comm/message.hpp"

#include <gtest/gtest.h>

#include <boost/describe.hpp>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace argosy::comm {
namespace {

struct Shard {
  std::string file;
  std::uint64_t size_bytes = 0;
  std::map<std::string, std::int64_t> dropped{};
  bool written = false;
  bool operator==(const Shard&) const = default;
};
BOOST_DESCRIBE_STRUCT(Shard, (), (file, size_bytes, dropped, written))

TEST(Message, BringsStructsBack) {
  const std::vector<Shard> shards{{"a\nb\"\\", std::numeric_limits<std::uint64_t>::max(), {{"too long", -3}}, true},
                                  {}};
  EXPECT_EQ(from_message<std::vector<Shard>>(to_message(shards)), shards);
}

TEST(Message, BringsBackBytesThatAreNoText) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  const std::vector<std::pair<std::string, std::string>> texts{{every, ""}, {"\xff\xc3", std::string("\0x", 2)}};
  EXPECT_EQ((from_message<std::vector<std::pair<std::string, std::string>>>(to_message(texts))), texts);
}

}  // namespace
}  // namespace argosy::comm
