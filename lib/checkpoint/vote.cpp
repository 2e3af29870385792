#include "checkpoint/vote.hpp"

#include "core/error.hpp"

namespace argosy::checkpoint {

Ballot vote(const comm::Communicator& world, const std::function<std::string()>& body) {
  std::string record;  // one letter and a text: "+" result, "-" failure that the run survives
  comm::agree(world, [&] {
    try {
      record = fmt::format("+{}", body());
    } catch (const Error& error) {
      const Fault fault = error.fault();
      if (fault != Fault::io && fault != Fault::corrupt && fault != Fault::data) throw;
      record = fmt::format("-{}", error.what());
    }
  });
  Ballot ballot;
  const std::vector<std::string> records = world.all_gather(record);
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const bool good = records[rank][0] == '+';
    ballot.results.push_back(good ? records[rank].substr(1) : "");
    if (!good && !ballot.why_not) {
      ballot.why_not =
          world.size() == 1 ? records[rank].substr(1) : fmt::format("rank {}: {}", rank, records[rank].substr(1));
    }
  }
  return ballot;
}

}  // namespace argosy::checkpoint
