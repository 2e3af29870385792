#include <fmt/format.h>

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdlib>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/run_folder.hpp"
#include "core/error.hpp"
#include "support/faulty_os.hpp"
#include "support/hollow_checkpoint.hpp"

/// What scripts/bench/scale runs: what one rank asks of the file system and tells the other ranks.
///   scale calls FOLDER RANKS…   on one rank: system calls of rank 0, and of any other, in a world of so many, whose
///                               shards have their sizes and nothing in them
///   scale traffic FOLDER        on the ranks there are: control traffic of rank 0 and of the last rank
namespace {

using namespace argosy;
using checkpoint::Manifest;
using comm::Context;

constexpr int kept = 5;

/// Calls of each phase in a world of `world` ranks, of which five checkpoints are there.
boost::json::array calls_of(const Context& context, const Path& run, int world) {
  const Files plain = Files::system();
  const auto place = [&](std::int64_t step) { return run / fmt::format("checkpoints/{:09}", step); };
  plain.make_folders(run / "checkpoints");
  for (int step = 1; step <= kept; ++step) test::commit_hollow_checkpoint(plain, place(step), world, step);

  boost::json::array phases;
  test::FaultyOs os;  // for its counts
  const Files files{os};
  const auto count = [&](const char* who, const char* phase, const std::function<void()>& body) {
    using enum test::Call;
    os.forget_all();
    body();
    std::size_t calls = 0, read_bytes = 0, written_bytes = 0;
    for (const test::Call call :
         {open, close, pread, pwrite, write, fsync, fstat, stat, mkdir, rmdir, rename, rename_noreplace, symlink})
      calls += os.count(call);
    for (const test::FaultyOs::Record& record : os.records()) {
      if (record.call == pread) read_bytes += record.size_bytes;
      if (record.call == pwrite || record.call == write) written_bytes += record.size_bytes;
    }
    phases.push_back({{"ranks", world},
                      {"who", who},
                      {"phase", phase},
                      {"calls", calls},
                      {"removals", os.count(unlink)},
                      {"read_bytes", read_bytes},
                      {"written_bytes", written_bytes}});
  };

  checkpoint::RunFolder owner{files, context.clock, context.log, run, kept};
  std::string text;
  count("rank 0", "start and load", [&] {
    owner.make();
    owner.sweep();
    owner.adopt();
    owner.begin_walk();
    const auto found = owner.next_candidate();
    text = files.read_text(found->directory() / checkpoint::manifest_name);
    owner.settle(found->directory());
  });
  const int any = world / 2;
  const Manifest stored = checkpoint::parse_manifest(text, "manifest").manifest;  // of step `kept`
  int step = kept;
  for (const auto& [commit, tidying] : {std::pair{"first commit", "tidying after it"}, std::pair{"commit", "tidying"},
                                        std::pair{"later commit", "later tidying"}}) {
    ++step;
    count("rank 0", commit, [&] { test::commit_hollow_checkpoint(files, place(step), world, step); });
    count("rank 0", tidying, [&] { owner.tidy(place(step)); });
  }

  // Another rank's shard of the newest, this time with what belongs in it, and its part of a load.
  Manifest manifest = stored;
  Manifest::Shard& own = manifest.shards[static_cast<std::size_t>(any)];
  const Path directory = place(kept), shard = directory / checkpoint::shard_name(any, world);
  plain.remove(shard);
  test::Toy toy{test::tiny_units(), test::layout_of(world), any};
  count("another", "save", [&] {
    std::vector<Bytes> payload = test::bytes_of(toy.fill(1).states());
    const std::vector<std::vector<std::byte>> index = manifest.index(any);
    payload.insert(payload.end(), index.begin(), index.end());
    const checkpoint::ShardMap map =
        checkpoint::create_shard(files, shard, manifest.identity(any), manifest.specs(any));
    own.root = checkpoint::write_shard(files, shard, map, payload).root;
    own.size_bytes = map.size_bytes;
  });
  const std::string shared = checkpoint::text_of(manifest);
  count("another", "start and load", [&] {
    checkpoint::Reader{files, directory, shared, &context.clock}.read_state(toy.states(), any);
  });
  return phases;
}

/// Control traffic of each phase on this rank.
boost::json::object traffic_of(Context& context, const Path& run) {
  boost::json::object phases;
  const auto count = [&](const char* phase, const std::function<void()>& body) {
    const comm::ControlTraffic before = context.world.control_traffic();
    body();
    const comm::ControlTraffic moved = context.world.control_traffic().since(before);
    phases[phase] = {moved.calls, moved.sent_bytes, moved.received_bytes};
  };
  std::optional<comm::Topology> topology;
  std::optional<checkpoint::Store> store;
  count("start", [&] {
    topology.emplace(comm::Topology::discover(context.world));
    static_cast<void>(context.world.all_gather("node-0000.cluster"));         // as Environment::exchange_hosts
    static_cast<void>(comm::odd_one(context.world, std::string(4000, 'x')));  // configuration, then three digests
    for (int i = 0; i < 3; ++i) static_cast<void>(comm::odd_one(context.world, std::string(32, 'x')));
    store.emplace(context, run, checkpoint::Store::Options{});
  });
  test::Toy toy{test::tiny_units(), context.topology.layout(), context.topology.canonical_rank()};
  count("step", [&] {
    std::array<double, 10> sums{};
    context.topology.canonical_comm().all_reduce(std::span<double>{sums});
    static_cast<void>(comm::any_of(context.world, false));
  });
  count("save", [&] {
    store->begin_save(checkpoint::Kind::temp, 1, toy.fill(1).states(), test::toy_sections(), test::toy_attachments());
    store->finish_save();
  });
  count("load", [&] { static_cast<void>(store->load(toy.states())); });
  return phases;
}

Exit run(Context& context, int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  if (mode == "calls" && context.world.size() == 1) {
    boost::json::array all;
    for (int i = 3; i < argc; ++i) {
      const int world = std::atoi(argv[i]);
      const Path folder = Path{argv[2]} / argv[i];
      for (const boost::json::value& phase : calls_of(context, folder, world)) all.push_back(phase);
      Files::system().remove_tree(folder);
    }
    context.print_result("scale", {{"calls", all}});
    return Exit::ok;
  }
  if (mode != "traffic") throw Error{Fault::usage, {.wanted = "calls FOLDER RANKS…, or traffic FOLDER", .got = mode}};
  const std::string own = boost::json::serialize(traffic_of(context, Path{argv[2]} / "run"));
  const std::vector<std::string> all = context.world.gather(own);
  if (context.is_root())
    context.print_result("scale", {{"ranks", context.world.size()},
                                   {"rank 0", boost::json::parse(all.front())},
                                   {"another", boost::json::parse(all.back())}});
  return Exit::ok;
}

}  // namespace

const argosy::comm::Communicator& argosy::test::world() { std::abort(); }  // of tests; not asked for here

int main(int argc, char** argv) {
  return comm::run_main(argc, argv, [&](Context& context) { return run(context, argc, argv); });
}
