#include "checkpoint/load.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {
namespace {

/// Rank 0's choice on all ranks, which do not list folders themselves: network file systems show each its own view.
std::optional<Reader> share(const comm::Context& context, const std::function<std::optional<Reader>()>& choose) {
  std::string path, text;
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    const std::optional<Reader> chosen = choose();
    if (!chosen) return;
    path = chosen->directory().string();
    text = context.files.read_text(chosen->directory() / manifest_name, manifest_limit_bytes);
  });
  path = context.world.broadcast(std::move(path));
  text = context.world.broadcast(std::move(text));
  std::optional<Reader> shared;
  comm::agree(context.world, [&] {
    if (!path.empty()) shared.emplace(context.files, Path{path}, text, &context.clock);
  });
  return shared;
}

/// What came of reading on all ranks: nothing wrong, or the error to go by, damage before trouble.
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
  // A record is one letter and a sentence: "d" damage, "t" trouble with reading; empty: sound.
  const std::string record = own ? fmt::format("{}{}", own->fault() == Fault::corrupt ? 'd' : 't', own->what()) : "";
  const std::vector<std::string> records = context.world.all_gather(record);
  for (const char kind : {'d', 't'}) {
    const auto found = std::find_if(records.begin(), records.end(),
                                    [&](const std::string& text) { return !text.empty() && text[0] == kind; });
    if (found == records.end()) continue;
    std::string sentence = found->substr(1);
    if (records.size() > 1) sentence = fmt::format("rank {}: {}", found - records.begin(), sentence);
    return Error{kind == 'd' ? Fault::corrupt : Fault::io, {.got = std::move(sentence)}};
  }
  return std::nullopt;
}

std::optional<Error> read(const comm::Context& context, const Reader& reader, std::span<const UnitState> units,
                          Verify verify) {
  return outcome_of(context, [&] {
    if (verify == Verify::full) reader.verify(context.world.rank(), context.world.size());
    reader.read_state(units, context.topology.canonical_rank(), verify != Verify::none);
  });
}

/// What the caller says of a checkpoint, and then its bytes. Collective.
std::optional<Error> check_and_read(const comm::Context& context, const Reader& reader,
                                    std::span<const UnitState> units, const LoadOptions& options, bool fell_back) {
  std::optional<Error> wrong;
  if (options.check) wrong = outcome_of(context, [&] { options.check(reader); });
  if (!wrong) wrong = read(context, reader, units, fell_back ? Verify::full : options.verify);
  return wrong;
}

/// "That one or exit 4": whatever is wrong with it ends the load, but for what the user has to decide.
Reader load_named(const comm::Context& context, RunFolder& folder, std::span<const UnitState> units,
                  const LoadOptions& options) {
  std::optional<Reader> reader = share(context, [&]() -> std::optional<Reader> {
    try {
      Reader named{context.files, *options.from};
      if (!options.abandon_newer) folder.refuse_newer(named);
      return named;
    } catch (const Error& error) {
      if (error.fault() != Fault::data) throw;
      throw Error{Fault::corrupt, error.facts()};
    }
  });
  const std::optional<Error> wrong = check_and_read(context, *reader, units, options, false);
  if (wrong) {
    throw Error{wrong->fault(),
                {.wanted = "the checkpoint that was named to be sound",
                 .got = wrong->facts().got,
                 .where = reader->directory().string(),
                 .remedy = "name another one, or resume from the newest"}};
  }
  comm::agree(context.world, [&] {
    if (context.is_root()) folder.abandon_newer(*reader);
  });
  return std::move(*reader);
}

}  // namespace

std::optional<Reader> newest(const comm::Context& context, RunFolder& folder) {
  return share(context, [&] {
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
    bool begun = false;
    while (true) {
      bool fell_back = false;
      reader = share(context, [&] {
        if (!std::exchange(begun, true)) folder.begin_walk();
        std::optional<Reader> candidate = folder.next_candidate();
        fell_back = folder.has_fallen_back();
        return candidate;
      });
      if (!reader) return std::nullopt;
      const std::optional<Error> wrong =
          check_and_read(context, *reader, units, options, comm::any_of(context.world, fell_back));
      if (!wrong) break;
      comm::agree(context.world, [&] {
        if (context.is_root()) folder.pass_over(reader->directory(), *wrong);
      });
    }
  }
  comm::agree(context.world, [&] {
    if (!context.is_root()) return;
    folder.put_aside();
    folder.settle(reader->directory());
  });
  return reader;
}

}  // namespace argosy::checkpoint
