#include "checkpoint/vote.hpp"

#include <array>

#include "core/error.hpp"

namespace argosy::checkpoint {

Ballot vote(const comm::Communicator& world, Results wanted, const std::function<std::string()>& body) {
  std::string result;
  std::optional<std::string> own;  // failure that the run survives
  comm::agree(world, [&] {
    try {
      result = body();
    } catch (const Error& error) {
      const Fault fault = error.fault();
      if (fault != Fault::io && fault != Fault::corrupt && fault != Fault::data) throw;
      own = error.what();
    }
  });
  Ballot ballot;
  std::array<std::int64_t, 1> first{own ? world.rank() : world.size()};
  world.all_reduce(std::span<std::int64_t>{first}, comm::Reduce::min);
  if (first[0] < world.size()) {
    const std::string why_not = world.broadcast(own.value_or(""), static_cast<int>(first[0]));
    ballot.why_not = world.size() == 1 ? why_not : fmt::format("rank {}: {}", first[0], why_not);
  } else if (wanted == Results::gathered) {
    ballot.results = world.gather(result);
  }
  return ballot;
}

}  // namespace argosy::checkpoint
