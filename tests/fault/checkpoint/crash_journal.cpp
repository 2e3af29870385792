#include "crash_journal.hpp"

#include <algorithm>
#include <iterator>

#include "comm/message.hpp"

namespace argosy::test {

std::vector<Change> merged(const comm::Communicator& world, const std::vector<Change>& own) {
  std::vector<Change> all;
  for (const std::string& text : world.all_gather(comm::to_message(own)))
    std::ranges::move(comm::from_message<std::vector<Change>>(text), std::back_inserter(all));
  std::stable_sort(all.begin(), all.end(), [](const Change& a, const Change& b) { return a.time_ns < b.time_ns; });
  return all;
}

}  // namespace argosy::test
