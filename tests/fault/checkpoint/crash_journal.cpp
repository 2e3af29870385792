#include "crash_journal.hpp"

#include <algorithm>
#include <sstream>

#include "core/error.hpp"

namespace argosy::test {
namespace {

std::string packed(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes) {
    text += fmt::format("{} {} {} {} {} {} {} {}\n", static_cast<int>(change.kind), change.time_ns, change.handle,
                        change.number, change.only_if_absent ? 1 : 0, change.path.size(), change.to.size(),
                        change.content.size());
    text += change.path + change.to + change.content;
  }
  return text;
}

void unpack(const std::string& text, std::vector<Change>& changes) {
  std::istringstream in{text};
  int kind = 0, only_if_absent = 0;
  std::size_t path = 0, to = 0, content = 0;
  Change change;
  while (in >> kind >> change.time_ns >> change.handle >> change.number >> only_if_absent >> path >> to >> content) {
    in.get();  // the end of the line
    change.kind = static_cast<Change::Kind>(kind);
    change.only_if_absent = only_if_absent != 0;
    for (const auto& [field, size] :
         {std::pair{&change.path, path}, std::pair{&change.to, to}, std::pair{&change.content, content}}) {
      field->resize(size);
      in.read(field->data(), static_cast<std::streamsize>(size));
    }
    ARGOSY_CHECK(in.good(), "a journal was cut short");
    changes.push_back(change);
  }
}

}  // namespace

std::vector<Change> merged(const comm::Communicator& world, const std::vector<Change>& own) {
  std::vector<Change> all;
  for (const std::string& text : world.all_gather(packed(own))) unpack(text, all);
  std::stable_sort(all.begin(), all.end(), [](const Change& a, const Change& b) { return a.time_ns < b.time_ns; });
  return all;
}

}  // namespace argosy::test
