#include "train/runner.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/nccl_collectives.hpp"
#include "comm/nccl_watch.hpp"
#include "core/error.hpp"
#include "optim/order_free_sum.hpp"

namespace argosy::train {
namespace {

/// From pinned memory the copy runs behind the kernels of earlier work; the allocator keeps the buffer until it is
/// done.
at::Tensor moved_to(const at::Tensor& host, c10::Device device) {
  return device.is_cpu() ? host : host.pin_memory().to(device, /*non_blocking=*/true);
}

at::Tensor ids_of(const std::vector<std::int64_t>& ids, at::IntArrayRef shape, c10::Device device) {
  if (ids.empty()) return {};
  return moved_to(at::from_blob(const_cast<std::int64_t*>(ids.data()), shape, at::kLong), device);
}

kernels::Documents documents_of(const data::Batch& batch, c10::Device device) {
  const std::int64_t width = batch.target_width, end = std::ssize(batch.segments);
  kernels::Documents documents;
  for (std::int64_t i = 0; i <= end; ++i) {
    const auto at = batch.segments.begin() + i;
    if (i == end || i % width == 0 || at[0] != at[-1]) documents.begins.push_back(narrow<std::int32_t>(i));
  }
  documents.on_device = moved_to(at::tensor(documents.begins, at::kInt), device);
  return documents;
}

void* const kComputeStream = nullptr;  // LibTorch's own on a GPU: the default one

double number_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.item<double>() : 0.0; }

void add_sums(StepResult& result, const data::Batch& batch, const model::Pass& pass) {
  const double truncated = number_of(pass.truncated_count);
  result.nll_sum += number_of(pass.nll_sum);
  result.loss_sum += number_of(pass.loss_sum);
  result.truncated_tokens += truncated;
  result.kept_tokens.at(batch.route) += static_cast<double>(batch.tgt_tokens) - truncated;
  if (result.corpora.empty()) return;
  const at::Tensor nll = pass.nll.cpu();
  for (std::size_t i = 0; i < batch.target_labels.size(); ++i) {
    if (batch.target_labels[i] == data::no_label) continue;
    telemetry::CorpusSums& corpus = result.corpora.at(static_cast<std::size_t>(batch.corpora.at(i)));
    corpus.nll += nll.const_data_ptr<double>()[i];
    ++corpus.tgt_tokens;
  }
}

void add_work(telemetry::Work& work, const data::Batch& batch, std::optional<std::int64_t> window) {
  for (std::size_t row = 0; row < batch.target_lengths.size(); ++row) {
    work.add_row(batch.source_lengths.empty() ? 0 : batch.source_lengths[row], batch.target_lengths[row], window);
  }
}

}  // namespace

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  compute_s += other.compute_s;
  reduce_s += other.reduce_s;
  norm_s += other.norm_s;
  update_s += other.update_s;
  gather_s += other.gather_s;
  return *this;
}

model::Inputs inputs_of(const data::Batch& batch, c10::Device device) {
  const std::int64_t rows = batch.rows, s = batch.source_width, t = batch.target_width;
  model::Inputs inputs;
  inputs.source = ids_of(batch.source, {rows, s}, device);
  inputs.source_lengths = ids_of(batch.source_lengths, {rows}, device);
  inputs.target_in = ids_of(batch.target_input, {rows, t}, device);
  inputs.target_labels = ids_of(batch.target_labels, {rows, t}, device);
  inputs.target_lengths = ids_of(batch.target_lengths, {rows}, device);
  inputs.source_positions = ids_of(batch.source_positions, {rows, s}, device);
  inputs.positions = ids_of(batch.positions, {rows, t}, device);
  inputs.segments = ids_of(batch.segments, {rows, t}, device);
  if (!batch.segments.empty() && !device.is_cpu()) inputs.documents = documents_of(batch, device);
  inputs.prompts = ids_of(batch.prompts, {rows, t}, device);
  return inputs;
}

/// What one micro-batch keeps between its forward and its backward visits.
struct Runner::MicroBatch {
  bool empty = true, recomputes = false;
  std::size_t first_trained = 0;  // visit: those before it have no backward pass and keep nothing
  model::Inputs inputs;
  model::Pass pass;
  model::State state;                 // output of the last visit, input of the next
  std::vector<model::State> in, out;  // by visit: leaves that record gradients, and what came of them
  at::Tensor x_gradient, memory_gradient;
};

/// A plan being executed.
struct Runner::Step {
  std::span<const data::Batch> batches;
  std::vector<std::int64_t> numbers{};  // of the micro-batches, by slot
  std::int64_t tgt_tokens = 0;
  bool training = true;
  const StepOptions& options;
  StepResult& result;
  std::vector<MicroBatch> micro_batches{};
};

Runner::Runner(model::Model& model, Buffers& buffers, std::vector<std::optional<comm::Group>> groups,
               const optim::Optimizer& optimizer, double max_grad_norm, optim::SkipGuard& guard, const Clock& clock,
               c10::Device device)
    : model_(model),
      buffers_(buffers),
      groups_(std::move(groups)),
      optimizer_(optimizer),
      max_grad_norm_(max_grad_norm),
      guard_(guard),
      clock_(clock),
      device_(device) {
  for (std::size_t c = 0; c < groups_.size(); ++c)
    coefficients_.push_back(at::ones({1}, at::TensorOptions(at::kFloat).device(device)));
  for (std::size_t r = 0; r < model_.spec().routes.size(); ++r)
    components_of_routes_.push_back(model_.spec().components_on(r));
}

void Runner::begin(MicroBatch& micro, const data::Batch& batch, int slot, const Step& step) const {
  micro.empty = batch.empty();
  if (micro.empty) return;
  micro.recomputes = step.training && step.options.recompute == plan::Recompute::block;
  micro.in.resize(model_.visits().size());
  micro.out.resize(model_.visits().size());
  micro.pass.training = step.training;
  micro.pass.seed = step.options.seed;
  micro.pass.step = step.options.step;
  micro.pass.recompute = step.options.recompute;
  micro.pass.micro_batch = step.numbers.empty() ? 0 : step.numbers[static_cast<std::size_t>(slot)];
  micro.pass.loss_scale = step.tgt_tokens > 0 ? 1.0 / static_cast<double>(step.tgt_tokens) : 0.0;
  micro.pass.loss = step.options.loss;
  micro.pass.wants_nll = !step.result.corpora.empty();
  micro.inputs = inputs_of(batch, device_);
}

void Runner::forward(MicroBatch& micro, int index) {
  const auto v = static_cast<std::size_t>(index);
  const model::Visit& visit = model_.visits()[v];
  const bool is_loss = visit.kind == spec::VisitKind::head, runs_again = micro.recomputes && !is_loss;
  model::State in = std::move(micro.state);
  const bool trains = micro.pass.training && v >= micro.first_trained;
  if (trains) {  // leaves: this segment's gradients end here
    if (in.x.defined()) in.x = in.x.detach().requires_grad_();
    if (in.memory.defined()) in.memory = in.memory.detach();
    if (visit.reads_memory) in.memory.requires_grad_();
  }
  const c10::AutoGradMode recording(trains && !runs_again);
  micro.state = visit.forward(in, micro.inputs, micro.pass);
  if (!trains) return;
  micro.in[v] = std::move(in);
  if (!runs_again) micro.out[v] = micro.state;
}

void Runner::backward(MicroBatch& micro, int index) {
  const auto v = static_cast<std::size_t>(index);
  const model::Visit& visit = model_.visits()[v];
  const model::State in = std::move(micro.in[v]);
  model::State out = std::move(micro.out[v]);
  micro.in[v] = micro.out[v] = {};
  const bool is_loss = visit.kind == spec::VisitKind::head;
  if (micro.recomputes && !is_loss) out = visit.forward(in, micro.inputs, micro.pass);
  if (is_loss) {
    micro.state = {};
    micro.x_gradient = at::ones_like(out.x);
  }
  std::vector<at::Tensor> outputs, gradients, wanted;
  if (micro.x_gradient.defined() && out.x.requires_grad()) {
    outputs.push_back(out.x);
    gradients.push_back(std::move(micro.x_gradient));
  }
  micro.x_gradient.reset();
  if (visit.writes_memory && micro.memory_gradient.defined()) {
    outputs.push_back(out.memory);
    gradients.push_back(std::move(micro.memory_gradient));
    micro.memory_gradient.reset();
  }
  if (outputs.empty()) return;
  if (in.x.defined()) wanted.push_back(in.x);
  if (visit.reads_memory) wanted.push_back(in.memory);
  if (wanted.empty()) return torch::autograd::backward(outputs, gradients);
  const std::vector<at::Tensor> found =
      torch::autograd::grad(outputs, wanted, gradients, std::nullopt, false, /*allow_unused=*/true);
  if (in.x.defined()) micro.x_gradient = found.front();
  if (!visit.reads_memory || !found.back().defined()) return;
  micro.memory_gradient = micro.memory_gradient.defined() ? micro.memory_gradient + found.back() : found.back();
}

/// What has been given to the device until now; on the host it has been done.
comm::Event Runner::computed() const {
  return device_.is_cuda() ? comm::record_event(comm::nccl_table(), kComputeStream) : comm::Event{};
}

/// Gathers what plans take for complete; once, as it does not change.
void Runner::complete_frozen() {
  for (int u = 0; UnitBuffers & unit : buffers_.units()) {
    const plan::Op op{
        .kind = plan::OpKind::gather, .unit = u, .group = model_.spec().units[static_cast<std::size_t>(u)].component};
    ++u;
    if (!unit.is_here() || !unit.is_frozen() || unit.rotates_weights || std::exchange(unit.is_complete, true)) continue;
    gather(op).wait_on(kComputeStream);
  }
}

comm::Event Runner::gather(const plan::Op& op) {
  const auto unit = static_cast<std::size_t>(op.unit);
  const UnitBuffers& buffers = buffers_.units()[unit];
  const bool across_nodes = op.levels == comm::Levels::outer;
  if (!across_nodes) buffers_.place_own_weights(unit);
  const comm::Group& group = *groups_[op.group];
  if (group.layout.world() == 1) return {};
  return group.collectives.all_gather(model_.units()[unit].space(),
                                      view_of(across_nodes ? buffers.held_weights : buffers.weights), computed(),
                                      op.levels);
}

comm::Event Runner::reduce(const plan::Op& op, bool has_examples) {
  const auto index = static_cast<std::size_t>(op.unit);
  model::Unit& unit = model_.units()[index];
  const UnitBuffers& buffers = buffers_.units()[index];
  const bool in_node = op.levels == comm::Levels::inner, across_nodes = op.levels == comm::Levels::outer;
  if (!across_nodes) {
    const model::Parameter* const lacking = unit.without_gradient();
    const bool may_lack =
        lacking != nullptr && lacking->role == spec::Role::head_bias && model_.architecture().embeddings_by_language;
    ARGOSY_CHECK(!has_examples || lacking == nullptr || may_lack, "no gradient has come to {}", lacking->name);
    // A rank without examples contributes zeros; so does the bias of the output of a language that is only read.
    for (model::Parameter& parameter : unit.parameters()) {
      if (parameter.gradient.defined() && !parameter.gradient_written) parameter.gradient.zero_();
    }
    buffers_.clear_gaps(index);
    unit.expect_fresh_gradients();
    if (groups_[op.group]->layout.world() == 1 && buffers.sums_in_place && !in_node) return {};  // it is the shard
  }
  return groups_[op.group]->collectives.reduce_scatter(
      unit.space(), view_of(across_nodes ? buffers.held_gradients : buffers.gradients),
      view_of(in_node ? buffers.held_gradients : buffers.shard.gradient), computed(),
      {.levels = op.levels, .continues = op.continues});
}

optim::Update Runner::update_of(const plan::Op& op, const StepOptions& options) const {
  return {.lr = options.lr,
          .number = options.updates[op.group],
          .coefficient = coefficients_[op.group],
          .sum = [&group = *groups_[op.group]](std::span<double> values) { group.collectives.all_reduce(values); }};
}

comm::Event Runner::to_owners(const plan::Op& op, const StepOptions& options) {
  const auto unit = static_cast<std::size_t>(op.unit);
  const UnitBuffers& buffers = buffers_.units()[unit];
  optimizer_.prepare(buffers.pieces, update_of(op, options));
  buffers_.place_own_gradients(unit);
  if (groups_[op.group]->layout.world() == 1) return {};
  return groups_[op.group]->collectives.all_gather(model_.units()[unit].space(), view_of(buffers.gradients),
                                                   computed());
}

/// Every rank leaves zeros where it does not own a matrix, so that the sum is the owners' values.
comm::Event Runner::to_shards(const plan::Op& op) {
  const auto unit = static_cast<std::size_t>(op.unit);
  const UnitBuffers& buffers = buffers_.units()[unit];
  const partition::FlatSpace& space = model_.units()[unit].space();
  const comm::Group& group = *groups_[op.group];
  std::vector<at::Tensor> own;
  for (std::size_t owner = unit; const spec::Matrix& matrix : model_.spec().units[unit].matrices()) {
    const std::int64_t begin = space.offset(space.index_of(matrix.parameter->name)) + matrix.begin;
    const at::Tensor values = buffers.gradients.narrow(0, begin, matrix.rows * matrix.columns);
    if (owner++ % static_cast<std::size_t>(group.layout.world()) != static_cast<std::size_t>(group.canonical_rank)) {
      values.zero_();
    } else if (matrix.parameter->decay) {
      own.push_back(values.view({matrix.rows, matrix.columns}));
    }
  }
  if (!own.empty()) optimizer_.transform(own, buffers.weights.scalar_type());
  if (group.layout.world() > 1)
    return group.collectives.reduce_scatter(space, view_of(buffers.gradients), view_of(buffers.shard.gradient),
                                            computed());
  buffers_.take_own_gradients(unit);
  return {};
}

/// The squares of each component over all ranks, with the same bits however the blocks are spread over them.
void Runner::set_all_squares(const std::set<std::size_t>& reduced, std::vector<double>& squares) {
  std::vector<optim::OrderFreeSum> sums(squares.size());
  for (const std::size_t unit : reduced)
    optim::add_squares(buffers_.units()[unit].pieces, sums[model_.spec().units[unit].component]);
  std::vector<std::int64_t> parts;  // of all, in one collective
  for (optim::OrderFreeSum& sum : sums) parts.insert(parts.end(), sum.parts().begin(), sum.parts().end());
  all().collectives.all_reduce(std::span<std::int64_t>{parts});
  for (auto from = parts.begin(); optim::OrderFreeSum & sum : sums) {
    std::copy_n(from, sum.parts().size(), sum.parts().begin());
    from += std::ssize(sum.parts());
  }
  for (std::size_t c = 0; c < sums.size(); ++c) squares[c] = sums[c].value();
}

/// One norm, one clip and the sums of the step in one small collective.
void Runner::decide(const plan::StepPlan& plan, Step& step) {
  const StepOptions& options = step.options;
  StepResult& result = step.result;
  std::vector<double> squares(coefficients_.size());  // by component
  std::set<std::size_t> reduced;                      // units
  for (const plan::Op& op : plan.ops) {
    if (op.kind == plan::OpKind::reduce) reduced.insert(static_cast<std::size_t>(op.unit));
  }
  for (const std::size_t unit : reduced)
    squares[model_.spec().units[unit].component] += optim::sum_of_squares(buffers_.units()[unit].pieces);
  double ranks_that_stop = options.wants_to_stop ? 1.0 : 0.0;
  const auto for_each_sum = [&](auto&& use) {
    telemetry::Work& work = result.work;
    for (double* each : {&ranks_that_stop, &work.source_positions, &work.target_positions, &work.encoder_pairs,
                         &work.decoder_pairs, &work.decoder_pairs_full, &work.cross_pairs})
      use(*each);
    for (double& each : squares) use(each);
    for (double* each : {&result.nll_sum, &result.loss_sum, &result.truncated_tokens}) use(*each);
    for (double& each : result.kept_tokens) use(each);
    for (telemetry::CorpusSums& corpus : result.corpora)
      for (double* each : {&corpus.nll, &corpus.tgt_tokens}) use(*each);
  };
  std::vector<double> values;
  for_each_sum([&](double sum) { values.push_back(sum); });
  all().collectives.all_reduce(std::span<double>{values});
  for_each_sum([next = values.begin()](double& sum) mutable { sum = *next++; });
  result.stop = ranks_that_stop > 0;
  if (plan.reduce_every == plan::ReduceEvery::micro_batch) set_all_squares(reduced, squares);

  // Losses were divided by all tokens, before it was known which of them stay.
  const auto tokens = static_cast<double>(step.tgt_tokens);
  std::vector<double> kept(squares.size());  // tokens, by component
  for (std::size_t r = 0; r < result.kept_tokens.size(); ++r)
    for (const std::size_t component : components_of_routes_[r]) kept[component] += result.kept_tokens[r];
  const double kept_in_all = tokens - result.truncated_tokens;
  std::vector<double> rescale(squares.size(), kept_in_all > 0 ? tokens / kept_in_all : 1.0);
  double all_squares = 0;
  for (std::size_t c = 0; c < squares.size(); ++c) {
    if (options.normalise_by_component) rescale[c] = kept[c] > 0 ? tokens / kept[c] : 1.0;
    result.component_norms.push_back(std::sqrt(squares[c]) * rescale[c]);
    all_squares += squares[c] * rescale[c] * rescale[c];
  }
  result.grad_norm = squares.size() == 1 ? result.component_norms.front() : std::sqrt(all_squares);
  result.skipped = guard_.skips(options.step, result.grad_norm, kept_in_all > 0 || tokens == 0);
  const double coefficient = optim::clip_coefficient(result.grad_norm, max_grad_norm_);
  result.clipped = !result.skipped && coefficient < 1;
  for (std::size_t c = 0; c < squares.size(); ++c)
    coefficients_[c].fill_(result.skipped ? -1.0 : coefficient * rescale[c]);
}

void Runner::execute(const plan::StepPlan& plan, Step& step) {
  ARGOSY_CHECK(step.batches.size() == plan.ways.size(), "{} micro-batches, {} planned", step.batches.size(),
               plan.ways.size());
  complete_frozen();
  step.micro_batches.resize(step.batches.size());
  std::vector<comm::Event> events(plan.ops.size());
  StepTimes& times = step.result.times;
  const auto spent_on = [&times](plan::OpKind kind) -> double& {
    switch (kind) {
      case plan::OpKind::gather:
        return times.gather_s;
      case plan::OpKind::reduce:
        return times.reduce_s;
      case plan::OpKind::norm:
        return times.norm_s;
      case plan::OpKind::to_owners:
      case plan::OpKind::to_shards:
      case plan::OpKind::update:
        return times.update_s;
      case plan::OpKind::forward:
      case plan::OpKind::backward:
        break;
    }
    return times.compute_s;
  };
  double before_s = clock_.monotonic_s();
  const auto book = [&](plan::OpKind kind) {
    const double now_s = clock_.monotonic_s();
    spent_on(kind) += now_s - before_s;
    before_s = now_s;
  };
  const c10::AutoGradMode recording(step.training);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    for (const int waited : op.waits_for) {
      const auto w = static_cast<std::size_t>(waited);
      events[w].wait_on(kComputeStream);
      book(plan.ops[w].kind);
    }
    const auto slot = static_cast<std::size_t>(op.micro_batch);
    MicroBatch* const micro = op.micro_batch < 0 ? nullptr : &step.micro_batches[slot];
    switch (op.kind) {
      case plan::OpKind::gather:
        events[i] = gather(op);
        break;
      case plan::OpKind::forward:
        if (op.visit == plan.ways[slot].first) {
          begin(*micro, step.batches[slot], op.micro_batch, step);
          micro->first_trained = static_cast<std::size_t>(plan.ways[slot].first_trained);
        }
        if (!micro->empty) forward(*micro, op.visit);
        break;
      case plan::OpKind::backward:
        if (!micro->empty) backward(*micro, op.visit);
        if (op.visit > plan.ways[slot].first_trained) break;
        if (!micro->empty) add_sums(step.result, step.batches[slot], micro->pass);
        *micro = {};
        break;
      case plan::OpKind::reduce:
        events[i] = reduce(op, micro != nullptr && !step.batches[slot].empty());
        break;
      case plan::OpKind::norm:
        decide(plan, step);
        if (step.options.before_update) step.options.before_update();
        break;
      case plan::OpKind::to_owners:
        events[i] = to_owners(op, step.options);
        break;
      case plan::OpKind::to_shards:
        events[i] = to_shards(op);
        break;
      case plan::OpKind::update: {
        const UnitBuffers& unit = buffers_.units()[static_cast<std::size_t>(op.unit)];
        optimizer_.update(unit.pieces, unit.statistics, update_of(op, step.options));
        break;
      }
    }
    book(op.kind);
  }
}

StepResult Runner::run(const plan::StepPlan& plan, const data::StepBatches& batches, const StepOptions& options) {
  StepResult result;
  result.kept_tokens.resize(components_of_routes_.size());
  if (batches.passes.size() > 1) result.corpora.resize(batches.passes.size());
  for (const auto& group : groups_) {
    if (group) group->collectives.set_step(options.step);
  }
  for (model::Unit& unit : model_.units()) unit.expect_fresh_gradients();
  for (const data::Batch& batch : batches.batches) add_work(result.work, batch, model_.architecture().window);
  Step step{.batches = batches.batches, .tgt_tokens = batches.totals.tgt_tokens, .options = options, .result = result};
  for (const std::vector<int>& slot : batches.dealt)
    step.numbers.push_back(slot[static_cast<std::size_t>(all().canonical_rank)]);
  execute(plan, step);
  return result;
}

double Runner::evaluate(const plan::StepPlan& plan, const data::Batch& batch, const model::LossOptions& loss) {
  StepResult result;
  StepOptions options;
  options.loss = loss;
  options.loss.label_smoothing = options.loss.error_norm_truncation = 0;
  Step step{.batches = {&batch, 1}, .training = false, .options = options, .result = result};
  execute(plan, step);
  return number_of(step.micro_batches.front().pass.nll_sum);
}

void Runner::with_whole_model(const plan::StepPlan& plan, const std::function<void()>& use) {
  struct Rebinding {
    ~Rebinding() {
      for (std::size_t u = 0; u < buffers.size(); ++u)
        if (buffers[u].rotates_weights) model.units()[u].bind_weights(buffers[u].weights);
    }
    model::Model& model;
    std::vector<UnitBuffers>& buffers;
  } const rebinding{model_, buffers_.units()};
  complete_frozen();
  for (const plan::Op& op : plan.ops) {
    if (op.kind != plan::OpKind::gather) continue;
    gather(op).wait_on(kComputeStream);
    if (op.weights >= 0)  // a later gather overwrites it
      model_.units()[static_cast<std::size_t>(op.unit)].bind_weights(
          buffers_.units()[static_cast<std::size_t>(op.unit)].weights.clone());
  }
  use();
}

}  // namespace argosy::train
