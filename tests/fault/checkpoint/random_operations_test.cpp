#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <thread>

#include "checkpoint/checkpoint.hpp"
#include "core/hash.hpp"
#include "core/random.hpp"
#include "support/caught.hpp"
#include "support/fault_options.hpp"
#include "support/faulty_os.hpp"
#include "support/later_process_os.hpp"
#include "support/refusal.hpp"
#include "support/saved_toys.hpp"
#include "support/temp_folder.hpp"

/// A long life of one run directory: saves, exports, failures and crashes in the middle of them, damage, restarts,
/// other jobs that want the directory, clocks that jump, in random order. ARGOSY_FAULT_SCALE multiplies the operations,
/// ARGOSY_FAULT_SEED chooses others.
namespace argosy::checkpoint {
namespace {

constexpr int kept = 3;

/// The machine of a run: its calls can fail, it can be started again, and another job can take its run away.
class Machine : public test::FaultyOs {
 public:
  explicit Machine(Path folder) : folder_(std::move(folder)), process_(folder_ / "stat") { reboot(); }
  void reboot() {
    heal();
    process_.start(++boots_);
  }
  /// Another host takes the run over while the next shard is synced.
  void lose_lease() { lose_lease_ = true; }
  /// Calls take some milliseconds, now and then: who starts at the same time is overtaken.
  void stall(bool on) { stalls_ = on; }
  int open(const char* path, int flags, unsigned mode) override {
    keep_waiting();
    return FaultyOs::open(process_.instead_of(path), flags, mode);
  }
  int fsync(int fd) override {
    if (lose_lease_.exchange(false)) take_over();
    keep_waiting();
    return FaultyOs::fsync(fd);
  }
  int rename_noreplace(const char* from, const char* to) override {
    keep_waiting();
    return FaultyOs::rename_noreplace(from, to);
  }
  /// The other host has ended, too.
  void end_other_host() const {
    Files::system().write_atomically(stolen_,
                                     "{\"host\":\"elsewhere\",\"pid\":1,\"start_time\":\"1\",\"boot_id\":\"x\","
                                     "\"slurm_job\":\"\",\"slurm_restart\":0,\"heartbeat\":1,\"released\":true}\n");
  }

 private:
  void keep_waiting() {
    if (!stalls_) return;
    const std::uint64_t chance = hash64("stall", ++calls_);
    if (chance % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(chance / 4 % 8));
  }
  void take_over() {
    const Path run = folder_ / "run";
    for (const std::string& name : Files::system().list(run)) {
      constexpr std::string_view prefix = "run.lock.";
      if (name.starts_with(prefix))
        stolen_ = run / fmt::format("{}{}", prefix, std::stoll(name.substr(prefix.size())) + 1);
    }
    Files::system().write_atomically(stolen_, std::string_view{"{\"host\":\"elsewhere\"}\n"});
  }
  Path folder_, stolen_;
  test::LaterProcess process_;
  int boots_ = 0;
  std::atomic<bool> lose_lease_ = false, stalls_ = false;
  std::atomic<std::uint64_t> calls_ = 0;
};

/// Sleeps at once; the time of day jumps.
class JumpyClock : public Clock {
 public:
  [[nodiscard]] double monotonic_s() const override { return now_s_; }
  [[nodiscard]] double wall_s() const override { return now_s_ + offset_s; }
  void sleep_s(double seconds) const override {
    now_s_ = now_s_ + seconds;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // whoever is waited for needs a processor
  }
  double offset_s = Clock{}.wall_s();

 private:
  mutable std::atomic<double> now_s_ = 0;
};

class Life {
 public:
  explicit Life(std::uint64_t seed) : seed_(seed), random_(seed, 2) {}

  void live(int operations) {
    start();
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      constexpr std::pair<int, void (Life::*)()> choices[] = {{38, &Life::save_temporary},
                                                              {6, &Life::save_export},
                                                              {13, &Life::save_with_a_failure},
                                                              {10, &Life::crash_in_a_save},
                                                              {6, &Life::restart},
                                                              {11, &Life::damage},
                                                              {5, &Life::second_job},
                                                              {3, &Life::race},
                                                              {4, &Life::lose_the_lease},
                                                              {4, &Life::jump}};
      std::uint64_t at = random_.below(100);
      for (const auto& [share, operation] : choices) {
        if (at < static_cast<std::uint64_t>(share)) {
          attempt(operation);
          break;
        }
        at -= static_cast<std::uint64_t>(share);
      }
      check();
      if (random_.below(4) == 0) load();
    }
    std::printf("%lld steps tried, %d committed, %d failed, %d crashes, %d damaged, %d refused jobs, %d lost leases\n",
                static_cast<long long>(step_), committed_, failed_, crashes_, damaged_, refused_, lost_);
    EXPECT_GT(std::min({committed_, failed_, crashes_, damaged_, refused_, lost_}), 0) << "not everything was tried";
  }

 private:
  void attempt(void (Life::*operation)()) {
    const auto error = test::caught([&] { (this->*operation)(); });
    EXPECT_FALSE(error) << error->what() << trace();
  }

  enum class Health {
    sound,
    unsure,  // not acknowledged, or its payload was damaged, perhaps where nobody looks
    broken   // by its manifest or sizes: neither loaded nor counted
  };
  struct Saved {
    Kind kind = Kind::temp;
    Health health = Health::sound;
  };

  [[nodiscard]] std::string trace() const {
    std::string text = fmt::format("\nARGOSY_FAULT_SEED={} ends with", seed_);
    for (const std::string& line : done_) text += "\n  " + line;
    return text;
  }
  void did(std::string line) {
    done_.push_back(std::move(line));
    if (done_.size() > 30) done_.pop_front();
  }
  [[nodiscard]] static Path place_of(std::int64_t step, Kind kind) {
    return fmt::format("{}/{:09}", kind == Kind::temp ? "checkpoints" : "export", step);
  }
  [[nodiscard]] test::Toy toy(std::int64_t step) {
    return test::own_toy(context_).fill(static_cast<std::uint64_t>(step));
  }

  /// A start after whatever was: nothing is left behind, nothing lost, nobody asked.
  void start() {
    const auto error = test::caught(
        [&] { store_ = std::make_unique<Store>(context_.get(), run_, Store::Options{.max_checkpoints = kept}); });
    ASSERT_FALSE(error) << "the start needs a person: " << error->what() << trace();
    load();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run_)) {
      const std::string name = entry.path().filename().string();
      EXPECT_FALSE(name.find(".tmp-") != std::string::npos || name.starts_with(".del-")) << name << trace();
    }
  }

  void load() {
    attempt(&Life::load_newest);
    check();  // what the load removed was not needed at this moment
  }
  void load_newest() {
    if (store_ == nullptr) return;
    std::int64_t floor = 0;
    for (const auto& [step, saved] : saved_)
      if (saved.health == Health::sound) floor = step;
    test::Toy got = toy(0);
    const auto found = store_->load(got.states());
    const std::int64_t step = found ? found->step() : 0;
    did(fmt::format("loaded {}", step));
    EXPECT_GE(step, floor) << trace();
    if (step == 0) return;
    EXPECT_TRUE(saved_.contains(step) && saved_[step].health != Health::broken) << step << trace();
    EXPECT_TRUE(got == toy(step)) << "step " << step << " has other bytes" << trace();
  }

  /// On disk: the newest of what was acknowledged and not damaged, and hardly more.
  void check() {
    const Files files = Files::system();
    int counted = 0, sound = 0;  // by retention; certainly
    for (auto at = saved_.rbegin(); at != saved_.rend(); ++at) {
      const auto& [step, saved] = *at;
      const bool there = files.exists(run_ / place_of(step, saved.kind));
      const bool temporary = saved.kind == Kind::temp;
      if (temporary && there && saved.health != Health::broken) ++counted;
      if (temporary && there && saved.health == Health::sound) ++sound;
      const bool needed = saved.health == Health::sound && (!temporary || (there ? counted : counted + 1) <= kept);
      EXPECT_TRUE(there || !needed) << place_of(step, saved.kind) << " is gone" << trace();
    }
    EXPECT_LE(sound, kept + 1 + 1) << "temporaries; one may be that which was loaded" << trace();
    std::erase_if(saved_,
                  [&](const auto& item) { return !files.exists(run_ / place_of(item.first, item.second.kind)); });
  }
  bool save(Kind kind) {
    ++step_;
    const SaveReport report = test::save_toy(*store_, toy(step_), step_, kind);
    saved_[step_] = {kind, report.committed ? Health::sound : Health::unsure};
    (report.committed ? committed_ : failed_) += 1;
    did(fmt::format("save of {}: {}", place_of(step_, kind).string(), report.committed ? "saved" : report.why_not));
    return report.committed;
  }
  void save_temporary() { EXPECT_TRUE(save(Kind::temp)) << trace(); }
  void save_export() { EXPECT_TRUE(save(Kind::export_)) << trace(); }
  void save_with_a_failure() {
    const int errors[] = {EIO, ENOSPC, EDQUOT, ESTALE};
    os_.fail(os_.count() + random_.below(130), errors[random_.below(4)]);
    save(Kind::temp);
    os_.heal();
  }
  /// Nothing reaches the disk from some call on; then the machine starts again.
  void crash_in_a_save() {
    ++crashes_;
    os_.crash(os_.count() + random_.below(130));
    did("crash in a save");
    save(random_.below(8) == 0 ? Kind::export_ : Kind::temp);
    store_ = nullptr;
    os_.reboot();
    start();
  }
  void restart() {
    did("restart");
    store_ = nullptr;
    start();
  }
  /// The time of day jumps far while a job saves, and again between it and the next.
  void jump() {
    const double far_s[] = {-86'400, -3'600, 3'600, 86'400}, near_s[] = {-299, -1, 0, 1, 299};
    clock_.offset_s = began_s_ + far_s[random_.below(4)];
    did(fmt::format("the time of day is {}", timestamp_text(clock_.wall_s())));
    save_temporary();
    store_ = nullptr;
    clock_.offset_s = began_s_ + near_s[random_.below(5)];
    start();
  }

  /// Damages one checkpoint while another sound one is there.
  void damage() {
    std::vector<std::int64_t> sound;
    for (const auto& [step, saved] : saved_)
      if (saved.health == Health::sound) sound.push_back(step);
    if (sound.size() < 2) return;
    const std::int64_t step = random_.below(2) == 0 ? sound.back() : sound[random_.below(sound.size())];
    Saved& saved = saved_[step];
    const Path directory = run_ / place_of(step, saved.kind), shard = directory / "shard-00000-of-00001.h5",
               manifest = directory / "MANIFEST.json";
    const Files files = Files::system();
    const std::uint64_t kind = random_.below(4);
    const Path& victim = kind == 3 ? manifest : shard;
    const std::uint64_t at = random_.below(files.stat(victim)->size_bytes);
    if (kind == 0) files.update(shard).truncate(at);
    if (kind == 1) files.remove(shard);
    if (kind >= 2) test::flip(victim, at, static_cast<int>(random_.below(8)));
    saved.health = kind == 2 ? Health::unsure : Health::broken;
    ++damaged_;
    did(fmt::format("damage {} to {} at {}", kind, victim.string(), at));
  }

  /// Another job on the same machine: refused, and without effect.
  void second_job() {
    did("second job");
    EXPECT_THROW(Store(other_.get(), run_, Store::Options{}), Error) << trace();
    ++refused_;
    EXPECT_TRUE(save(Kind::temp)) << trace();
  }
  /// Two jobs start at once on a directory that nobody owns: one wins.
  void race() {
    did("race");
    store_ = nullptr;
    std::atomic<int> wins = 0, usage = 0;
    std::unique_ptr<Store> winners[2];
    const auto run = [&](int job) {
      const auto error = test::caught([&] {
        winners[job] = std::make_unique<Store>((job == 0 ? context_ : other_).get(), run_, Store::Options{});
      });
      if (!error) ++wins;
      if (error && error->fault() == Fault::usage) ++usage;
    };
    os_.stall(true);
    { const std::jthread first{run, 0}, second{run, 1}; }
    os_.stall(false);
    EXPECT_EQ(wins, 1) << trace();
    EXPECT_EQ(usage, 1) << trace();
    ++refused_;
    for (auto& winner : winners) winner = nullptr;
    start();
  }
  /// A job elsewhere takes the run over in the middle of a save: nothing may be committed any more.
  void lose_the_lease() {
    did("lose the lease");
    ++step_;
    ++lost_;
    os_.lose_lease();
    SCOPED_TRACE(trace());
    test::refusal(Fault::usage, [&] { (void)test::save_toy(*store_, toy(step_), step_); });
    EXPECT_FALSE(Files::system().exists(run_ / place_of(step_, Kind::temp))) << trace();
    store_ = nullptr;
    os_.end_other_host();
    start();
  }

  std::uint64_t seed_;
  RandomStream random_;
  const test::TempFolder folder_;
  const Path run_ = folder_ / "run";
  Machine os_{folder_.path()};
  JumpyClock clock_;
  const double began_s_ = clock_.offset_s;
  test::TestContext context_{os_, test::world(), test::Hierarchy::flat, clock_},
      other_{os_, test::world(), test::Hierarchy::flat, clock_};
  std::unique_ptr<Store> store_;
  std::map<std::int64_t, Saved> saved_;
  std::int64_t step_ = 0;
  int committed_ = 0, failed_ = 0, crashes_ = 0, damaged_ = 0, refused_ = 0, lost_ = 0;
  std::deque<std::string> done_;
};

TEST(RandomOperations, LoseNothingAndLeaveNothing) {
  constexpr int longest = 1'000;  // each keeps its permanent checkpoints, and looks at all of them
  std::uint64_t seed = test::fault_seed(11);
  for (int left = test::scaled(longest); left > 0 && !HasFailure(); left -= longest)
    Life{seed++}.live(std::min(left, longest));
}

}  // namespace
}  // namespace argosy::checkpoint
