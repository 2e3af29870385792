#include "crash_restart.hpp"

#include <algorithm>
#include <iterator>

#include "comm/message.hpp"
#include "core/error.hpp"
#include "support/caught.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

namespace argosy::test {
namespace {

constexpr const char* run_name = "runs/run";

Toy toy_of(const partition::Layout& layout, int rank, std::int64_t step) {
  return Toy{crash_units(), layout, rank}.fill(static_cast<std::uint64_t>(step));
}

bool is_step(const std::string& name) { return name.size() == 9 && name.find_first_not_of("0123456789") == name.npos; }

/// Names anywhere in the run directory that only a save or a removal in progress has.
std::string left_over(const Path& run) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp-") != std::string::npos || name.starts_with(".del-")) return entry.path().string();
  }
  return "";
}

std::ptrdiff_t temporaries_in(const Path& run) {
  const std::vector<std::string> names = Files::system().list(run / "checkpoints");
  return std::count_if(names.begin(), names.end(), is_step);
}

}  // namespace

Units crash_units() {
  return {{"embedding", {{"embedding/weight", {7, 5}}}},
          {"head", {{"head/scale", {}, false}, {"head/weight", {5, 9}}}}};
}

checkpoint::Sections crash_sections(std::int64_t step) { return toy_sections(1.0 / static_cast<double>(step)); }

std::vector<Change> record_saves(int max_checkpoints) {
  const SharedFolder folder;
  JournalOs os{folder.path(), world().rank()};
  TestContext context{os, world()};
  std::int64_t step = 0;
  for (const std::int64_t last : {crash_export, crash_saves}) {
    checkpoint::Store store{context.get(), folder / run_name, {.max_checkpoints = max_checkpoints, .heartbeat_s = 0}};
    const auto newest = store.newest();
    ARGOSY_CHECK((newest ? newest->step() : 0) == step, "the second start found {}", newest ? newest->step() : 0);
    for (++step; step <= last; ++step) {
      const auto kind = step == crash_export ? checkpoint::Kind::export_ : checkpoint::Kind::temp;
      const auto report = save_toy(store, own_toy(context, crash_units()), step, kind, crash_sections(step));
      ARGOSY_CHECK(report.committed, "step {} was not saved: {}", step, report.why_not);
      os.acknowledge(step);
    }
    --step;
  }
  std::vector<Change> changes;  // of all ranks
  for (const std::string& text : world().all_gather(comm::to_message(os.changes())))
    std::ranges::move(comm::from_message<std::vector<Change>>(text), std::back_inserter(changes));
  std::ranges::stable_sort(changes, {}, &Change::time_ns);
  CrashDisk disk;
  std::erase_if(changes, [&](const Change& change) { return !disk.apply(change); });
  return changes;
}

Restart::Restart(int max_checkpoints)
    : max_checkpoints_(max_checkpoints),
      os_(folder_ / "stat"),
      alone_(world().split(world().rank(), 0)),
      context_(os_, alone_, Hierarchy::flat, clock_) {
  constexpr double reboot_s = 60;
  clock_.now_s = Clock{}.wall_s() + reboot_s;
}

Restart::Outcome Restart::after(const CrashDisk::Tree& tree) {
  const Files files = Files::system();
  const Path root = folder_ / "tree";
  files.make_folder(root);
  tree.materialise(root);
  Outcome outcome;
  const auto error = caught([&] { outcome.wrong = check(root / run_name, outcome.newest); });
  if (error) outcome.wrong = fmt::format("the restart needs a person: {}", error->what());
  files.remove_tree(root);
  return outcome;
}

std::string Restart::check(const Path& run, std::int64_t& newest_step) {
  const partition::Layout saved_layout{std::vector<int>{crash_ranks}};
  const auto states_differ = [&](const checkpoint::Reader& reader, std::int64_t step) {
    for (int rank = 0; rank < crash_ranks; ++rank) {
      Toy got{crash_units(), saved_layout, rank};
      reader.read_state(got.states(), rank);
      if (!(got == toy_of(saved_layout, rank, step))) return true;
    }
    return reader.sections().metrics != crash_sections(step).metrics ||
           reader.attachment(toy_attachments()[0].name) != toy_attachments()[0].content;
  };
  {
    checkpoint::Store store{context_.get(), run, {.max_checkpoints = max_checkpoints_, .heartbeat_s = 0}};
    Toy loaded = own_toy(context_, crash_units());
    if (const auto found = store.load(loaded.states())) {
      newest_step = found->step();
      found->verify();
      if (!(loaded == toy_of(context_.topology().layout(), 0, newest_step)) || states_differ(*found, newest_step))
        return fmt::format("step {} has other bytes", newest_step);
    }
    if (temporaries_in(run) > max_checkpoints_ + 1) return fmt::format("{} temporaries", temporaries_in(run));
    const std::int64_t step = newest_step + 1;
    const auto report =
        save_toy(store, own_toy(context_, crash_units()), step, checkpoint::Kind::temp, crash_sections(step));
    if (!report.committed) return fmt::format("the next save failed: {}", report.why_not);
    const auto again = store.newest();
    if (!again || again->step() != step || states_differ(*again, step)) return "the next save cannot be loaded";
  }
  const std::string left = left_over(run);
  return left.empty() ? "" : fmt::format("{} was left", left);
}

}  // namespace argosy::test
