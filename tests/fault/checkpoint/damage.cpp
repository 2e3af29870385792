#include "damage.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/run_folder.hpp"
#include "core/error.hpp"

namespace argosy::test {
namespace {

const std::string run_uuid(32, 'a');

void write(const Path& path, const std::string& content) {
  File file = Files::system().replace(path);
  file.write_at(as_bytes(content), 0);
  file.close();
}

Toy one_rank() { return {tiny_units(), partition::Layout{{1}}, 0}; }

bool has_bytes_of(Toy& got, std::int64_t step) { return got == one_rank().fill(static_cast<std::uint64_t>(step)); }

}  // namespace

std::string content_of(const Path& path) { return Files::system().read_text(path); }

DamagedRun::DamagedRun(int ranks) : ranks_(ranks) {
  const Files files = Files::system();
  files.make_folders(run() / "checkpoints");
  for (const std::int64_t step : {older_step, newer_step})
    write_checkpoint(files, at(step), tiny_units(), partition::Layout{{ranks}}, static_cast<std::uint64_t>(step),
                     {.run_uuid = run_uuid, .save_nonce = fmt::format("{:016x}", step), .step = step});
  store_.emplace(context_.get(), run(), checkpoint::Store::Options{.max_checkpoints = 5, .heartbeat_s = 0});
}

Path DamagedRun::at(std::int64_t step) const { return run() / "checkpoints" / fmt::format("{:09}", step); }

Path DamagedRun::shard(const Path& checkpoint, int rank) const {
  return checkpoint / checkpoint::shard_name(rank, ranks_);
}

Path DamagedRun::twin(const std::string& uuid, const std::string& nonce) const {
  const Path target = folder_ / ("twin" + nonce);
  write_checkpoint(Files::system(), target, tiny_units(), partition::Layout{{ranks_}}, newer_step,
                   {.run_uuid = uuid.empty() ? run_uuid : uuid, .save_nonce = nonce, .step = newer_step});
  return target;
}

std::int64_t DamagedRun::load() {
  Toy got = one_rank().fill_all(99);
  const auto reader = store_->load(got.states());
  const std::int64_t step = reader ? reader->step() : 0;
  for (const std::string& name : Files::system().list(run() / "checkpoints"))
    if (name.starts_with(".bad-")) Files::system().rename(run() / "checkpoints" / name, newer());
  return has_bytes_of(got, step) ? step : 0;
}

DamagedRun::Verdict DamagedRun::read_in_a_child() const {
  constexpr unsigned limit_s = 10;
  const pid_t child = fork();
  if (child == 0) {
    ::alarm(limit_s);
    Verdict verdict = Verdict::sound;
    try {
      const Log log{0, LogLevel::error};
      const Clock clock;
      checkpoint::RunFolder folder{Files::system(), clock, log, run(), 5};
      folder.adopt();
      folder.begin_walk();
      for (auto reader = folder.next_candidate(); reader; reader = folder.next_candidate()) {
        try {
          Toy got = one_rank().fill_all(99);
          reader->read_state(got.states(), 0);
          const std::int64_t wanted = verdict == Verdict::sound ? newer_step : older_step;
          if (reader->step() != wanted || !has_bytes_of(got, wanted)) verdict = Verdict::wrong;
          break;
        } catch (const Error& error) {
          const bool fits = error.fault() == Fault::corrupt || error.fault() == Fault::io;
          verdict = fits ? Verdict::detected : Verdict::wrong;
        }
      }
    } catch (const std::exception&) {
      verdict = Verdict::wrong;
    }
    ::_exit(static_cast<int>(verdict));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? Verdict::hung : Verdict::crashed;
  return static_cast<Verdict>(WEXITSTATUS(status));
}

DamagedRun::Damage::Damage(Path path, const std::string& content) : path_(std::move(path)), before_(content_of(path_)) {
  write(path_, content);
}

DamagedRun::Damage::~Damage() { write(path_, before_); }

}  // namespace argosy::test
