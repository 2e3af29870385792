#include "core/error.hpp"
#include "optim/optimizer.hpp"

namespace argosy::optim {
namespace {

/// Decoupled weight decay (arXiv:1711.05101). States: first and second moment.
class Adamw final : public Optimizer {
 public:
  explicit Adamw(const AdamwNumbers& numbers) : Optimizer(numbers.ema), numbers_(numbers) {}

 private:
  void update_weights(std::span<const Piece> pieces, const Statistics& /*none*/, const Update& update) const override {
    for (const Piece& piece : pieces) update_piece(piece, update);
  }

  void update_piece(const Piece& piece, const Update& update) const {
    const kernels::AdamwOptions options{.lr = update.lr,
                                        .beta1 = numbers_.beta1,
                                        .beta2 = numbers_.beta2,
                                        .epsilon = numbers_.epsilon,
                                        .weight_decay = piece.decays ? numbers_.weight_decay : 0.0,
                                        .step = update.number};
    ARGOSY_CHECK(piece.states.size() == 2, "{} states for AdamW", piece.states.size());
    const at::Tensor &first = piece.states[0], &second = piece.states[1];
    const bool has_wide_master = piece.master.scalar_type() == at::kFloat;
    const bool rounds = has_wide_master && piece.weights && piece.weights->scalar_type() == at::kBFloat16;
    if (has_wide_master) {
      kernels::adamw_(piece.master, first, second, piece.gradient, rounds ? piece.weights : std::nullopt,
                      update.coefficient, options);
    } else {
      kernels::adamw_stochastic_(piece.master, first, second, piece.gradient, update.coefficient, options,
                                 piece.rounding);
    }
    if (piece.weights && !rounds) piece.weights->copy_(piece.master);
  }

  const AdamwNumbers numbers_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamwNumbers& numbers) { return std::make_unique<Adamw>(numbers); }

}  // namespace argosy::optim
