#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/bytes.hpp"

/// Passes pieces of bytes to several stages, each of which runs in a thread of its own: while one piece is written and
/// hashed, the caller makes the next. Every stage sees every piece, in the order of the caller. Owns its buffers, which
/// bound the memory. The caller is one thread.
namespace argosy {

class PieceQueue {
 public:
  using Stage = std::function<void(std::uint64_t offset, Bytes bytes)>;

  /// Starts the threads. pieces: how many are in work at most. What a stage throws comes out of the next call here.
  PieceQueue(std::vector<Stage> stages, std::size_t pieces);
  /// Waits for what the stages are doing. Pieces that they have not begun are dropped.
  ~PieceQueue();
  PieceQueue(const PieceQueue&) = delete;
  PieceQueue& operator=(const PieceQueue&) = delete;

  /// A buffer for the next piece, with any content; waits until there is one.
  [[nodiscard]] MutableBytes room(std::size_t size_bytes);
  /// Hands over the piece that the last room() was given for. offset: passed on to the stages.
  void put(std::uint64_t offset);
  /// Waits until all stages are done with all pieces.
  void finish();

 private:
  struct Piece {
    std::uint64_t offset = 0;
    std::size_t size_bytes = 0;
    std::vector<std::byte> buffer;  // grows to the largest piece
  };
  void run(std::size_t stage, const Stage& work);
  /// The number of pieces that all stages are done with.
  [[nodiscard]] std::uint64_t done() const;
  void rethrow() const;

  std::vector<Piece> pieces_;  // the n-th piece is in n % size
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t put_ = 0;
  std::vector<std::uint64_t> taken_;  // by stage
  std::exception_ptr failure_;        // the first
  bool stopped_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace argosy
