#include <algorithm>
#include <atomic>
#include <future>
#include <utility>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_view.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/save.hpp"
#include "core/error.hpp"
#include "core/lease.hpp"
#include "core/random.hpp"

namespace argosy::checkpoint {
namespace {

/// Runs the work after a commit in a thread of its own and measures how long it takes.
class Tidying {
 public:
  explicit Tidying(const Clock& clock) : clock_(clock) {}
  template <class Work>
  void begin(Work work) {
    began_s_ = clock_.monotonic_s();
    work_ = std::async(std::launch::async, [this, work] {
      work();
      longest_s_ = seconds();
      began_s_ = not_at_work;
    });
  }
  void wait() {
    if (work_.valid()) work_.get();
  }
  [[nodiscard]] double seconds() const {
    const double began_s = began_s_;
    return std::max<double>(longest_s_, began_s == not_at_work ? 0 : clock_.monotonic_s() - began_s);
  }

 private:
  static constexpr double not_at_work = -1;
  const Clock& clock_;
  std::atomic<double> began_s_ = not_at_work, longest_s_ = 0;
  std::future<void> work_;  // last: it uses the others
};

}  // namespace

struct Store::Impl {
  comm::Context& context;
  RunFolder folder;               // used by rank 0
  std::unique_ptr<Lease> lock{};  // rank 0
  std::string run_uuid{};
  std::unique_ptr<Save> save{};      // in progress
  std::unique_ptr<Tidying> tidying;  // rank 0, after a commit
  ModelView model_view{};            // rank 0
  std::jthread heartbeat{};          // rank 0

  [[nodiscard]] bool root() const { return context.is_root(); }

  /// Rank 0: bytes of model.h5. Empty where it cannot be made: the checkpoint is saved without it.
  [[nodiscard]] std::string view_of(const Manifest& manifest) {
    try {
      return root() ? model_view.of(manifest) : "";
    } catch (const Error& error) {
      context.log.warn("checkpoints are complete but lack {}, which only shows them to people: {}", model_view_name,
                       error.what());
      return "";
    }
  }

  std::optional<SaveReport> advance(bool wait, Tidy tidy = Tidy::now) {
    if (save == nullptr) return std::nullopt;
    std::optional<SaveReport> report = save->advance(wait);
    if (!report) return std::nullopt;
    save.reset();
    if (report->committed && root()) {
      tidying->begin([this, tidy, committed = report->directory] { folder.tidy(committed, tidy); });
      if (wait) tidying->wait();
    }
    return report;
  }
};

Store::Store(comm::Context& context, Path run_dir, Options options)
    : impl_(std::make_unique<Impl>(
          Impl{.context = context,
               .folder = {context.files, context.clock, context.log, std::move(run_dir), options.max_checkpoints},
               .tidying = std::make_unique<Tidying>(context.clock)})) {
  comm::at_root(context.world, [&] {
    impl_->folder.make();
    impl_->lock = std::make_unique<Lease>(context.files, context.clock, impl_->folder.path(), "run directory");
    if (options.heartbeat_s > 0)
      impl_->heartbeat = heartbeat(*impl_->lock, std::chrono::duration<double>(options.heartbeat_s));
    impl_->folder.sweep();
    impl_->run_uuid = impl_->folder.adopt();
  });
  impl_->run_uuid = context.world.broadcast(impl_->run_uuid);
}

Store::~Store() = default;

const Path& Store::run_dir() const noexcept { return impl_->folder.path(); }
Path Store::place_of(Kind kind, std::int64_t step) const { return impl_->folder.place_of(kind, step); }

std::optional<Reader> Store::load(std::span<const UnitState> units, const LoadOptions& options) {
  impl_->tidying->wait();
  return checkpoint::load(impl_->context, impl_->folder, units, options);
}

std::optional<Reader> Store::newest() const {
  impl_->tidying->wait();
  return checkpoint::newest(impl_->context, impl_->folder);
}

void Store::begin_save(Kind kind, std::int64_t step, std::span<const UnitState> units, const Sections& sections,
                       std::span<const Attachment> attachments, std::function<void()> complete_units) {
  ARGOSY_CHECK(impl_->save == nullptr, "step {}: another save is in progress", step);
  const comm::Context& context = impl_->context;
  impl_->tidying->wait();
  Manifest manifest{.run_uuid = impl_->run_uuid,
                    .save_nonce = context.world.broadcast(impl_->root() ? random_hex(save_nonce_digits) : ""),
                    .kind = kind,
                    .step = step,
                    .wall_time_s = context.clock.wall_s(),
                    .sections = sections};
  for (const UnitState& unit : units) {
    manifest.unit_names.push_back(unit.name);
    manifest.spaces.push_back(*unit.space);
    for (auto& tensors = manifest.tensors.emplace_back(); const TensorShard& shard : unit.tensors)
      tensors.push_back(shard.tensor);
  }
  const std::string view = impl_->view_of(manifest);
  const Path target = impl_->folder.place_of(kind, step);
  impl_->save =
      std::make_unique<Save>(context, impl_->lock.get(),
                             Save::Input{.manifest = std::move(manifest),
                                         .target = target,
                                         .units = {units.begin(), units.end()},
                                         .attachments = {attachments.begin(), attachments.end()},
                                         .model_view = view,
                                         .complete_units = std::move(complete_units),
                                         .make_way = [impl = impl_.get(), target] { impl->folder.make_way(target); }});
}

bool Store::is_saving() const noexcept { return impl_->save != nullptr; }

void Store::wait_for_units() const {
  if (impl_->save != nullptr) impl_->save->wait_for_units();
}

std::optional<SaveReport> Store::poll_save() { return impl_->advance(false); }

std::optional<SaveReport> Store::finish_save(Tidy tidy) { return impl_->advance(true, tidy); }

double Store::tidying_s() const noexcept { return impl_->tidying->seconds(); }

void Store::abandon_save() noexcept { impl_->save.reset(); }

SaveReport Store::save(Kind kind, std::int64_t step, std::span<const UnitState> units, const Sections& sections,
                       std::span<const Attachment> attachments) {
  begin_save(kind, step, units, sections, attachments);
  return *finish_save();
}

}  // namespace argosy::checkpoint
