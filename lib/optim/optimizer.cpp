#include "optim/optimizer.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/error.hpp"

namespace argosy::optim {

namespace {

/// Elements of a unit that take one launch where they lie in one slice.
struct Run {
  std::int64_t begin, end;
  bool decays;
  kernels::Rounding rounding{};
};

std::vector<Run> runs_of(const partition::FlatSpace& space, const ShardState& shard) {
  const std::int64_t decay_begin = space.decay_begin(), padded = space.padded_size();
  std::int64_t small = 0;  // parameters without decay
  for (const partition::ParamSpec& param : space.params()) small += param.decay ? 0 : 1;
  const auto [seed, first] = shard.rounding;
  if (shard.master.scalar_type() == at::kFloat)
    return {{0, decay_begin, false, {.seed = seed, .parameter = first}},
            {decay_begin, padded, true, {.seed = seed, .parameter = first + small}}};
  std::vector<Run> runs;
  for (std::size_t p = 0; p < space.params().size(); ++p) {
    const bool is_last = p + 1 == space.params().size();
    runs.push_back({.begin = space.offset(p),
                    .end = is_last ? padded : space.offset(p + 1),
                    .decays = space.offset(p) >= decay_begin,
                    .rounding = {.seed = seed, .parameter = first + static_cast<std::int64_t>(p)}});
  }
  return runs;
}

}  // namespace

std::vector<Piece> pieces_of(const partition::FlatSpace& space, int canonical_rank, const ShardState& shard) {
  ARGOSY_CHECK(shard.master.numel() == space.owned_size(canonical_rank), "a shard of {} elements, {} owned",
               shard.master.numel(), space.owned_size(canonical_rank));
  const std::vector<Run> runs = runs_of(space, shard);
  std::vector<Piece> pieces;
  for (std::int64_t local = 0; const int slice : space.owned_slices(canonical_rank)) {
    const std::int64_t begin = space.slice_begin(slice), end = begin + space.slice_size();
    for (const Run& run : runs) {
      const std::int64_t from = std::max(begin, run.begin), to = std::min(end, run.end);
      if (from >= to) continue;
      const auto part = [&](const at::Tensor& of) { return of.narrow(0, local + from - begin, to - from); };
      Piece& piece = pieces.emplace_back();
      piece.begin = from;
      piece.master = part(shard.master);
      if (shard.gradient.defined()) piece.gradient = part(shard.gradient);
      for (const ShardState::Own& state : shard.states) {
        const std::int64_t at = (local + from - begin - state.begin) / state.elements;
        if (local + from - begin >= state.begin && at < state.numbers.numel())
          piece.states.push_back(state.numbers.narrow(0, at, (to - from) / state.elements));
      }
      if (shard.ema.defined()) piece.ema = part(shard.ema);
      if (shard.weights.defined()) piece.weights = shard.weights.narrow(0, from - shard.weights_begin, to - from);
      piece.decays = run.decays;
      piece.rounding = run.rounding;
      piece.rounding.begin = from - run.begin;
    }
    local += space.slice_size();
  }
  return pieces;
}

double sum_of_squares(std::span<const Piece> pieces) {
  double sum = 0;
  for (const Piece& piece : pieces) sum += kernels::sum_of_squares(piece.gradient).item<double>();
  return sum;
}

Statistics statistics_of(const spec::Unit& unit, const partition::FlatSpace& space, int canonical_rank,
                         const spec::StateOf& state, at::TensorOptions options) {
  Statistics statistics{.canonical_rank = canonical_rank, .matrices = {}, .tensors = {}};
  for (const spec::StateTensor& tensor : unit.kept(state)) {
    if (tensor.is_flat()) continue;
    partition::FlatSpace own(unit.flat(tensor), space.layout());
    const std::int64_t size = own.owned_size(canonical_rank);
    statistics.tensors.push_back({tensor.name, std::move(own), at::zeros({size}, options)});
  }
  for (const spec::Matrix& matrix : unit.matrices()) {
    const std::int64_t begin = space.offset(space.index_of(matrix.parameter->name)) + matrix.begin;
    statistics.matrices.push_back({begin, matrix.rows, matrix.columns});
  }
  return statistics;
}

std::vector<MatrixPart> matrix_parts(std::span<const Piece> pieces, const Statistics& statistics) {
  std::vector<MatrixPart> parts;
  for (const Piece& piece : pieces) {
    for (std::size_t m = 0; m < statistics.matrices.size(); ++m) {
      const auto& [begin, rows, columns] = statistics.matrices[m];
      const std::int64_t from = std::max(begin, piece.begin),
                         to = std::min(begin + rows * columns, piece.begin + piece.master.numel());
      if (from < to)
        parts.push_back(
            {.piece = &piece, .matrix = m, .begin = from - begin, .at = from - piece.begin, .size = to - from});
    }
  }
  return parts;
}

void store_weights(const Piece& piece, const at::Tensor& values, std::int64_t number) {
  if (piece.master.scalar_type() == at::kBFloat16)
    kernels::round_stochastically_(piece.master, values, number, piece.rounding);
  if (piece.weights) piece.weights->copy_(piece.master);
}

void Optimizer::update(std::span<const Piece> pieces, const Statistics& statistics, const Update& update) const {
  update_weights(pieces, statistics, update);
  // Smaller at first, while the mean still contains the initial weights.
  const auto updates = static_cast<double>(update.number);
  const double decay = std::min(ema_, (updates + 1) / (updates + 10));
  for (const Piece& piece : pieces) {
    if (piece.ema) kernels::ema_(*piece.ema, piece.master, update.coefficient, decay);
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, bool language_model, bool has_master) {
  switch (config.type) {
    case OptimizerType::adamw:
      break;
    case OptimizerType::adafactor:
      return make_adafactor(adafactor_numbers(config, language_model));
    case OptimizerType::muon:
      return make_muon(resolve(config, language_model, has_master), config.momentum);
  }
  return make_adamw(resolve(config, language_model, has_master));
}

}  // namespace argosy::optim
