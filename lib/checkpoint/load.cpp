#include "checkpoint/load.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "comm/message.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {
namespace {

/// The one that rank 0 chooses, if it chooses any.
std::optional<Reader> share_one(const comm::Context& context, const std::function<std::optional<Reader>()>& choose) {
  std::vector<Reader> shared = share(context, [&] {
    std::vector<Reader> chosen;
    if (std::optional<Reader> one = choose()) chosen.push_back(std::move(*one));
    return chosen;
  });
  return shared.empty() ? std::nullopt : std::optional{std::move(shared.front())};
}

/// Reads on all ranks. nullopt: nothing is wrong. Else the error of the lowest rank that found damage or, without
/// damage, of the lowest that could not read.
std::optional<Error> outcome_of(const comm::Context& context, const std::function<void()>& read) {
  std::optional<Error> own;
  comm::agree(context.world, [&] {
    try {
      read();
    } catch (const Error& error) {
      if (error.fault() != Fault::corrupt && error.fault() != Fault::io) throw;
      own = error;
    }
  });
  const comm::Communicator& world = context.world;
  for (const Fault fault : {Fault::corrupt, Fault::io}) {
    const std::optional<int> first = comm::lowest_rank(world, own && own->fault() == fault);
    if (!first) continue;
    const std::string sentence = world.broadcast(own ? own->problem() : "", *first);
    return Error{fault, {.got = world.size() == 1 ? sentence : fmt::format("rank {}: {}", *first, sentence)}};
  }
  return std::nullopt;
}

/// The units of which the checkpoint has parameters.
std::vector<UnitState> stored_of(const Reader& reader, std::span<const UnitState> units) {
  std::vector<UnitState> stored;
  for (const UnitState& unit : units) {
    const auto is_stored = [&reader](const partition::ParamSpec& param) { return reader.has(param.name); };
    if (std::ranges::any_of(unit.space->params(), is_stored)) stored.push_back(unit);
  }
  return stored;
}

/// Calls options.check, then reads. Collective.
std::optional<Error> check_and_read(const comm::Context& context, const Reader& reader,
                                    std::span<const UnitState> units, const LoadOptions& options, bool fell_back) {
  std::optional<Error> wrong;
  if (options.check) wrong = outcome_of(context, [&] { options.check(reader); });
  if (wrong) return wrong;
  return outcome_of(context, [&] {
    const Verify verify = fell_back ? Verify::full : options.verify;
    if (verify == Verify::full) reader.verify(context.world.rank(), context.world.size());
    const std::vector<UnitState> stored = options.may_lack_units ? stored_of(reader, units) : std::vector<UnitState>{};
    reader.read_state(options.may_lack_units ? stored : units, context.topology.canonical_rank(),
                      verify != Verify::none);
  });
}

/// Loads options.from or throws; never falls back to another checkpoint.
Reader load_named(const comm::Context& context, RunFolder& folder, std::span<const UnitState> units,
                  const LoadOptions& options) {
  std::optional<Reader> reader = share_one(context, [&]() -> std::optional<Reader> {
    try {
      Reader named{context.files, context.files.follow_links(*options.from)};
      if (!options.abandon_newer) folder.refuse_newer(named);
      return named;
    } catch (const Error& error) {
      if (error.fault() != Fault::data) throw;
      throw Error{Fault::corrupt, error.facts()};
    }
  });
  const std::optional<Error> wrong = check_and_read(context, *reader, units, options, false);
  if (wrong)
    throw_claim(wrong->fault(), fmt::format("cannot load {}: {}", reader->directory().string(), wrong->facts().got),
                reader->directory().string(), "the named checkpoint to be intact", wrong->facts().got,
                "give another checkpoint, or resume from the newest");
  comm::at_root(context.world, [&] { folder.abandon_newer(*reader); });
  return std::move(*reader);
}

}  // namespace

std::vector<Reader> share(const comm::Context& context, const std::function<std::vector<Reader>()>& choose) {
  std::vector<Reader> readers;
  std::vector<std::pair<std::string, std::string>> manifests;  // their folders and texts
  comm::at_root(context.world, [&] {
    readers = choose();
    for (const Reader& reader : readers) {
      const auto& [path, text] =
          manifests.emplace_back(reader.directory().string(),
                                 context.files.read_text(reader.directory() / manifest_name, manifest_limit_bytes));
      if (text.find(reader.self_digest()) != std::string::npos) continue;
      throw_claim(Fault::corrupt, path + " changed while it was being read", path, "a checkpoint that does not change",
                  "one that changed while it was being read", "wait until no process writes to it");
    }
  });
  manifests = comm::from_message<decltype(manifests)>(context.world.broadcast(comm::to_message(manifests)));
  readers.clear();  // rank 0 has just seen all files, and waits for none
  comm::agree(context.world, [&] {
    for (const auto& [path, text] : manifests)
      readers.emplace_back(context.files, Path{path}, text, context.is_root() ? nullptr : &context.clock);
  });
  return readers;
}

Reader open_on_all(const comm::Context& context, const Path& directory) {
  return *share_one(context, [&] {
    return std::optional{Reader{context.files, context.files.follow_links(directory)}};
  });
}

std::optional<Reader> newest(const comm::Context& context, RunFolder& folder) {
  return share_one(context, [&] {
    folder.begin_walk();
    std::optional<Reader> found = folder.next_candidate();
    folder.put_aside();
    return found;
  });
}

std::optional<Reader> load(const comm::Context& context, RunFolder& folder, std::span<const UnitState> units,
                           const LoadOptions& options) {
  std::optional<Reader> reader;
  if (options.from) {
    reader = load_named(context, folder, units, options);
  } else {
    comm::at_root(context.world, [&] { folder.begin_walk(); });
    while (true) {
      bool fell_back = false;
      reader = share_one(context, [&] {
        std::optional<Reader> candidate = folder.next_candidate();
        fell_back = folder.has_fallen_back();
        return candidate;
      });
      if (!reader) return std::nullopt;
      const std::optional<Error> wrong =
          check_and_read(context, *reader, units, options, comm::any_of(context.world, fell_back));
      if (!wrong) break;
      comm::at_root(context.world, [&] { folder.pass_over(reader->directory(), *wrong); });
    }
  }
  comm::at_root(context.world, [&] {
    folder.put_aside();
    folder.settle(reader->directory());
  });
  return reader;
}

}  // namespace argosy::checkpoint
