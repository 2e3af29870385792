#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

/// Runs the kernels of lib/kernels/cuda on the host. The threads of a block are contexts of their own that run one at
/// a time, each until it waits for others; a warp runs until it waits for other warps. Threads of odd blocks take turns
/// in descending order, and so do blocks, so that a missing wait shows in the results. Shared memory begins with NaN.
/// One block at a time.
namespace argosy::test {

/// Why a thread stands still.
enum class Standing { runs, in_warp, in_block, done };

class EmulatedGrid {
 public:
  /// Runs the kernel on blocks [first, blocks). False, with a sentence in problem(), if threads wait for others that
  /// never come.
  template <class Kernel>
  bool run(const Kernel& kernel, std::int64_t first, std::int64_t blocks, int threads, std::int64_t shared_bytes);
  [[nodiscard]] const char* problem() const { return problem_; }

  /// What a kernel sees of it.
  class Block {
   public:
    Block(EmulatedGrid& grid, int thread) : grid_(&grid), thread_(thread) {}
    [[nodiscard]] int thread() const { return thread_; }
    [[nodiscard]] int threads() const { return grid_->threads_; }
    [[nodiscard]] std::int64_t index() const { return grid_->index_; }
    [[nodiscard]] float* shared() const { return reinterpret_cast<float*>(grid_->shared_.data()); }
    void wait() const { grid_->stand(thread_, Standing::in_block); }
    template <class Value>
    [[nodiscard]] Value shuffled(Value value, int mask) const {
      static_assert(sizeof(Value) <= 8);
      Thread& own = *grid_->fibers_[static_cast<std::size_t>(thread_)];
      const std::size_t turn = own.shuffles++ % 2;  // a lane may be at the next shuffle before another has read this
      std::memcpy(&own.given[turn], &value, sizeof value);
      grid_->stand(thread_, Standing::in_warp);
      std::memcpy(&value, &grid_->fibers_[static_cast<std::size_t>(thread_ ^ mask)]->given[turn], sizeof value);
      return value;
    }

   private:
    EmulatedGrid* grid_;
    int thread_;
  };

 private:
  struct alignas(16) Room {
    std::array<std::uint32_t, 4> words;
  };
  struct Thread {
    ucontext_t context{};
    std::array<char, 64 << 10> stack;
    Standing standing = Standing::runs;
    std::size_t shuffles = 0;
    std::array<std::uint64_t, 2> given{};
  };

  static void enter(int thread) {
    current_->body_(thread);
    current_->fibers_[static_cast<std::size_t>(thread)]->standing = Standing::done;
  }
  void stand(int thread, Standing why) {
    Thread& own = *fibers_[static_cast<std::size_t>(thread)];
    own.standing = why;
    swapcontext(&own.context, &scheduler_);
  }
  bool run_block(bool descending);
  /// Runs the threads of a warp until they wait for other warps: those may be far ahead of each other on a GPU.
  void run_warp(int first, bool descending);
  [[nodiscard]] bool stand(int first, int count, Standing where) const {
    return std::all_of(fibers_.begin() + first, fibers_.begin() + first + count,
                       [where](const auto& thread) { return thread->standing == where; });
  }
  void go_on(int first, int count) {
    std::for_each(fibers_.begin() + first, fibers_.begin() + first + count,
                  [](const auto& thread) { thread->standing = Standing::runs; });
  }

  inline static EmulatedGrid* current_ = nullptr;
  std::function<void(int)> body_;
  std::vector<std::unique_ptr<Thread>> fibers_;
  std::vector<Room> shared_;
  ucontext_t scheduler_{};
  std::int64_t index_ = 0;
  int threads_ = 0;
  const char* problem_ = "";
};

template <class Kernel>
bool EmulatedGrid::run(const Kernel& kernel, std::int64_t first, std::int64_t blocks, int threads,
                       std::int64_t shared_bytes) {
  if (threads % 32 != 0 || threads < 32 || threads > 256) {
    problem_ = "a block has whole warps, at most 8";
    return false;
  }
  if (shared_bytes > 48 << 10) {
    problem_ = "a block has at most 48 KiB of shared memory";
    return false;
  }
  threads_ = threads;
  while (fibers_.size() < static_cast<std::size_t>(threads)) fibers_.push_back(std::make_unique<Thread>());
  body_ = [&](int thread) { kernel(Block(*this, thread)); };
  for (index_ = blocks - 1; index_ >= first; --index_) {
    shared_.assign(static_cast<std::size_t>((shared_bytes + 15) / 16), Room{{~0U, ~0U, ~0U, ~0U}});
    if (!run_block(index_ % 2 == 1)) return false;
  }
  return true;
}

inline bool EmulatedGrid::run_block(bool descending) {
  current_ = this;
  for (int i = 0; i < threads_; ++i) {
    Thread& own = *fibers_[static_cast<std::size_t>(i)];
    own.standing = Standing::runs;
    own.shuffles = 0;
    getcontext(&own.context);
    own.context.uc_stack.ss_sp = own.stack.data();
    own.context.uc_stack.ss_size = own.stack.size();
    own.context.uc_link = &scheduler_;
    makecontext(&own.context, reinterpret_cast<void (*)()>(&EmulatedGrid::enter), 1, i);
  }
  for (;;) {
    for (int warp = 0; warp < threads_; warp += 32) run_warp(descending ? threads_ - 32 - warp : warp, descending);
    if (stand(0, threads_, Standing::done)) return true;
    if (!stand(0, threads_, Standing::in_block)) {
      problem_ = "threads of a block wait for others that have ended or wait elsewhere";
      return false;
    }
    go_on(0, threads_);
  }
}

inline void EmulatedGrid::run_warp(int first, bool descending) {
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      Thread& own = *fibers_[static_cast<std::size_t>(descending ? first + 31 - i : first + i)];
      if (own.standing == Standing::runs) swapcontext(&scheduler_, &own.context);
    }
    if (!stand(first, 32, Standing::in_warp)) return;
    go_on(first, 32);
  }
}

}  // namespace argosy::test
