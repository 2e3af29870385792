#include "core/piece_queue.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace argosy {

PieceQueue::PieceQueue(std::vector<Stage> stages, std::size_t pieces) : pieces_(pieces), taken_(stages.size(), 0) {
  ARGOSY_CHECK(pieces > 0 && !stages.empty(), "{} pieces, {} stages", pieces, stages.size());
  for (std::size_t i = 0; i < stages.size(); ++i)
    threads_.emplace_back([this, i, work = std::move(stages[i])] { run(i, work); });
}

PieceQueue::~PieceQueue() {
  {
    const std::scoped_lock lock{mutex_};
    stopped_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

std::uint64_t PieceQueue::done() const { return *std::ranges::min_element(taken_); }

void PieceQueue::rethrow() const {
  if (failure_) std::rethrow_exception(failure_);
}

MutableBytes PieceQueue::room(std::size_t size_bytes) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return failure_ || put_ - done() < pieces_.size(); });
  rethrow();
  Piece& piece = pieces_[put_ % pieces_.size()];
  piece.size_bytes = size_bytes;
  if (piece.buffer.size() < size_bytes) piece.buffer.resize(size_bytes);
  return MutableBytes{piece.buffer}.first(size_bytes);
}

void PieceQueue::put(std::uint64_t offset) {
  {
    const std::scoped_lock lock{mutex_};
    pieces_[put_ % pieces_.size()].offset = offset;
    ++put_;
  }
  changed_.notify_all();
}

void PieceQueue::finish() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return failure_ || done() == put_; });
  rethrow();
}

void PieceQueue::run(std::size_t stage, const Stage& work) {
  std::unique_lock lock{mutex_};
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || failure_ || taken_[stage] < put_; });
    if (stopped_ || failure_) return;
    const Piece& piece = pieces_[taken_[stage] % pieces_.size()];
    lock.unlock();
    std::exception_ptr failure;
    try {
      work(piece.offset, Bytes{piece.buffer}.first(piece.size_bytes));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++taken_[stage];
    if (failure && !failure_) failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace argosy
