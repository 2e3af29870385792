#include "model/model.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/head_loss.hpp"
#include "model/impl.hpp"
#include "model/neftune.hpp"
#include "model/segment.hpp"

namespace argosy::model {

using kernels::OptionalTensor;

using spec::ModelType;
using spec::NormPosition;
using spec::Position;
using spec::Role;
using spec::VisitKind;

Unit::Unit(const spec::Unit& spec, const partition::Layout& layout) : name_(spec.name), space_(spec.flat(), layout) {
  for (const partition::ParamSpec& param : space_.params()) {
    parameters_.push_back({spec.parameter(param.name), {}, {}});
  }
}

void Unit::bind_views(at::Tensor Parameter::*view, const at::Tensor& flat) {
  ARGOSY_CHECK(!flat.defined() || flat.numel() == space_.padded_size(), "unit {}: {} elements bound, {} wanted", name_,
               flat.numel(), space_.padded_size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    parameter.*view = flat.defined()
                          ? flat.narrow(0, space_.offset(i), space_.params()[i].numel()).view(parameter.shape)
                          : at::Tensor();
  }
}

void Unit::bind_weights(const at::Tensor& flat) { bind_views(&Parameter::weight, flat); }
void Unit::bind_gradients(const at::Tensor& flat) { bind_views(&Parameter::gradient, flat); }

void Unit::bind(const at::Tensor& weights, const at::Tensor& gradients) {
  bind_weights(weights);
  bind_gradients(gradients);
}

Parameter& Unit::parameter(const std::string& name) { return parameters_[space_.index_of(name)]; }

Parameter* Unit::parameter(Role role) noexcept {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& parameter) { return parameter.role == role; });
  return found == parameters_.end() ? nullptr : &*found;
}

void Unit::expect_fresh_gradients() noexcept {
  for (Parameter& parameter : parameters_) parameter.gradient_written = false;
}

const Parameter* Unit::without_gradient() const noexcept {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [](const Parameter& parameter) {
    return parameter.gradient.defined() && !parameter.gradient_written;
  });
  return found == parameters_.end() ? nullptr : &*found;
}

VisitParameters::VisitParameters(std::vector<Unit>& units, const spec::Visit& visit) {
  for (const std::size_t unit : visit.units) units_.push_back(&units[unit]);
}

Parameter* VisitParameters::find(std::string_view name) const noexcept {
  for (Unit* const unit : units_) {
    const auto found = std::ranges::find(unit->parameters(), name, &Parameter::name);
    if (found != unit->parameters().end()) return &*found;
  }
  return nullptr;
}

Parameter* VisitParameters::find(spec::Role role) const noexcept {
  for (Unit* const unit : units_) {
    if (Parameter* const found = unit->parameter(role)) return found;
  }
  return nullptr;
}

Parameter& VisitParameters::at(const std::string& name) const {
  Parameter* const found = find(name);
  ARGOSY_CHECK(found != nullptr, "no parameter {} in the units of a visit", name);
  return *found;
}

Model::Impl::Impl(const spec::ModelSpec& model_spec, std::span<const partition::Layout> layouts)
    : spec(model_spec), shape(spec.architecture) {
  for (const spec::Unit& unit : spec.units) units.emplace_back(unit, layouts[unit.component]);
  const bool translation = shape.type == ModelType::encoder_decoder, pre = shape.norm_position == NormPosition::pre;
  encoder.reserve(spec.visits.size());  // visits refer to their blocks
  decoder.reserve(spec.visits.size());
  sources.reserve(spec.visits.size());
  targets.reserve(spec.visits.size());
  for (const spec::Visit& visit : spec.visits) {
    const VisitParameters parameters(units, visit);
    const std::int64_t site = std::ssize(visits);
    const auto add_visit = [&](auto forward) { visits.push_back({visit, std::move(forward)}); };
    const auto add_embedding = [&](std::vector<Embedding>& embeddings, Role table, bool is_encoder) {
      Embedding& embedding = embeddings.emplace_back(Embedding{.table = parameters.find(table)});
      const Position position = shape.position(is_encoder);
      if (position == Position::learned)
        embedding.positions =
            &parameters.at(fmt::format("{}/position_encodings/encodings", is_encoder ? "encoder" : "decoder"));
      if (position == Position::sinusoidal || position == Position::sinusoidal_fairseq) {
        const bool like_source = !sources.empty() && shape.encoder_position == position;
        const Embedding& first = like_source ? sources.front() : embeddings.front();  // all have the same
        embedding.sinusoids = first.sinusoids.defined()
                                  ? first.sinusoids
                                  : kernels::sinusoids(shape.max_positions, shape.width, position);
      }
      add_visit([=, this, &embedding](const State& state, const Inputs& inputs, Pass& pass) {
        return embed_visit(embedding, is_encoder, site, state, inputs, pass);
      });
    };
    const auto add_block = [&](std::vector<Block>& blocks, bool is_encoder) {
      const Shared shared{rotary, parameters.find(Role::relative_bias)};
      add_visit([&block = blocks.emplace_back(shape, parameters, visit.prefix, is_encoder, site, shared)](
                    const State& state, const Inputs& inputs, Pass& pass) {
        return State{block.forward(state.x, state.memory, inputs, pass), state.memory};
      });
    };
    switch (visit.kind) {
      case VisitKind::source:
        add_embedding(sources, shape.tie_inputs ? Role::target_embedding : Role::source_embedding, true);
        break;
      case VisitKind::encoder_block:
        add_block(encoder, true);
        break;
      case VisitKind::target:
        if (translation && pre) encoder_norm.emplace(parameters, "encoder/layer_norm", shape);
        add_embedding(targets, Role::target_embedding, false);
        break;
      case VisitKind::decoder_block:
        add_block(decoder, false);
        break;
      case VisitKind::head:
        heads.push_back({.weight = parameters.find(shape.tie_embeddings ? Role::target_embedding : Role::head_weight),
                         .bias = parameters.find(Role::head_bias)});
        if (pre) decoder_norm.emplace(parameters, "decoder/layer_norm", shape);
        add_visit([this, head = heads.back()](const State& state, const Inputs& inputs, Pass& pass) {
          return head_visit(head, state, inputs, pass);
        });
        break;
    }
  }
}

at::Tensor Model::Impl::embed(Embedding& embedding, const at::Tensor& ids, const at::Tensor& positions,
                              std::int64_t offset) const {
  const std::int64_t end = offset + ids.size(1);
  if (end > shape.max_positions)
    throw_error(Fault::data, "an input text", fmt::format("at most {} positions", shape.max_positions),
                std::to_string(end), "shorten it, or train a model with a larger model.max_positions");
  at::Tensor& sinusoids = embedding.sinusoids;
  if (sinusoids.defined() && sinusoids.device() != ids.device()) sinusoids = sinusoids.to(ids.device());
  const std::int64_t used = positions.defined() ? std::min(end + shape.position_shift_max, shape.max_positions) : end;
  const at::Tensor learned =
      embedding.positions != nullptr ? embedding.positions->weight.narrow(0, 0, used).to(at::kFloat) : at::Tensor();
  return kernels::embedding(ids, embedding.table->weight, shape.embedding_scale(),
                            optional(learned.defined() ? learned : sinusoids), optional(positions), offset);
}

/// The visit that embeds the target also ends the encoder: it takes its output as x and leaves it, normed, as memory.
State Model::Impl::embed_visit(Embedding& embedding, bool is_encoder, std::int64_t site, const State& state,
                               const Inputs& inputs, const Pass& pass) {
  const at::Tensor& ids = is_encoder ? inputs.source : inputs.target_in;
  const kernels::DropoutKey key{pass.seed, pass.step, pass.micro_batch, 4 * site};
  const double dropout = pass.training ? shape.dropout : 0;
  const bool ends_encoder = !is_encoder && shape.type == ModelType::encoder_decoder;
  const std::int64_t skip_id = shape.vocabulary.zero_row().value_or(-1);
  const at::Tensor& positions = is_encoder ? inputs.source_positions : inputs.positions;
  State result;
  NormLayer::Saved saved;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    result.x = embed(embedding, ids, positions, 0);
    if (pass.training && shape.neftune_alpha > 0) {  // its gradient is that of x
      const at::Tensor scales =
          is_encoder ? noise_scales(shape.neftune_alpha, result.x, inputs.source_lengths, {})
                     : noise_scales(shape.neftune_alpha, result.x, inputs.target_lengths, inputs.segments);
      kernels::add_noise_(result.x, scales, {pass.seed, pass.step, pass.micro_batch, 4 * site + 1});
    }
    if (dropout > 0) result.x = kernels::dropout_add(std::nullopt, result.x, dropout, key);
    if (ends_encoder) {
      const at::Tensor encoded = state.x.detach();
      result.memory = encoder_norm
                          ? encoder_norm->forward(encoded.reshape({-1, shape.width}), &saved).view(encoded.sizes())
                          : encoded;
    }
  }
  if (!recording()) return result;  // also with no gradient bound: it may be by the time of the backward pass
  Tensors outputs{result.x}, incoming;
  if (ends_encoder) {
    outputs.push_back(result.memory);
    incoming.push_back(state.x);
  }
  attach(outputs, incoming, [=, this, saved = std::move(saved), &embedding](const Tensors& gradients) -> Tensors {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const GradientSlot dtable = gradients[0].defined() ? claim_gradient(*embedding.table) : GradientSlot{};
    const GradientSlot dpositions = gradients[0].defined() && embedding.positions != nullptr
                                        ? claim_gradient(*embedding.positions)
                                        : GradientSlot{};
    if (dtable.gradient.defined() || dpositions.gradient.defined()) {
      at::Tensor dx = gradients[0];
      if (dropout > 0) dx = kernels::dropout_add(std::nullopt, dx.contiguous(), dropout, key);
      if (dtable.gradient.defined())
        kernels::embedding_backward(dx, ids, shape.embedding_scale(), dtable.gradient, dtable.accumulate, skip_id);
      if (dpositions.gradient.defined())
        kernels::embedding_backward(
            dx, positions.defined() ? positions : at::arange(ids.size(1), ids.options()).expand_as(ids), 1,
            dpositions.gradient, dpositions.accumulate, -1);
    }
    if (!ends_encoder) return {};
    const at::Tensor& dmemory = gradients[1];
    if (!encoder_norm || !dmemory.defined()) return {dmemory};
    return {encoder_norm->backward(dmemory.reshape({-1, shape.width}), saved).view(dmemory.sizes())};
  });
  return result;
}

State Model::Impl::head_visit(const Head& head, const State& state, const Inputs& inputs, Pass& pass) {
  const bool record = recording();
  NormLayer::Saved saved;
  at::Tensor loss, dh;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor x = state.x.reshape({-1, shape.width});
    const double scale = shape.output_scale();
    at::Tensor h = decoder_norm ? decoder_norm->forward(x, &saved) : x;
    if (scale != 1) h = h * scale;
    kernels::HeadLossOutputs outputs;
    if (pass.wants_nll) outputs.nll = pass.nll = at::empty({h.size(0)}, h.options().dtype(at::kDouble));
    if (record) {
      dh = at::empty_like(h);
      outputs.dh = dh;
      if (const auto [gradient, accumulate] = claim_gradient(*head.weight); gradient.defined()) {
        outputs.dweight = gradient;
        outputs.accumulate_weight = accumulate;
      }
      if (const GradientSlot slot = head.bias != nullptr ? claim_gradient(*head.bias) : GradientSlot{};
          slot.gradient.defined()) {
        outputs.dbias = slot.gradient;
        outputs.accumulate_bias = slot.accumulate;
      }
    }
    const at::Tensor sums = kernels::head_loss(h, head.weight->weight,
                                               head.bias != nullptr ? OptionalTensor(head.bias->weight) : std::nullopt,
                                               inputs.target_labels.reshape({-1}),
                                               {.label_smoothing = pass.loss.label_smoothing,
                                                .z = pass.loss.z,
                                                .truncation = pass.loss.error_norm_truncation,
                                                .loss_scale = pass.loss_scale,
                                                .live = shape.vocabulary.pieces,
                                                .chunk_bytes = pass.loss.chunk_bytes},
                                               outputs);
    if (record && scale != 1) dh.mul_(scale);
    pass.nll_sum = sums.select(0, 0);
    pass.loss_sum = sums.select(0, 1);
    pass.token_count = sums.select(0, 2);
    pass.correct_count = sums.select(0, 3);
    pass.truncated_count = sums.select(0, 4);
    loss = (pass.loss_sum * pass.loss_scale).to(at::kFloat);
  }
  if (record) {
    attach({loss}, {state.x},
           [=, this, saved = std::move(saved), sizes = state.x.sizes().vec()](const Tensors& gradients) -> Tensors {
             const at::AutoDispatchBelowADInplaceOrView below_autograd;
             if (gradients[0].is_cpu()) {
               ARGOSY_CHECK(gradients[0].item<float>() == 1.0F,
                            "the backward pass must start with gradient 1, see Model::visits");
             }
             return {(decoder_norm ? decoder_norm->backward(dh, saved) : dh).view(sizes)};
           });
  }
  return {loss, {}};
}

Model::Model(const spec::ModelSpec& spec, std::span<const partition::Layout> layouts)
    : impl_(std::make_unique<Impl>(spec, layouts)) {}
Model::~Model() = default;
const spec::ModelSpec& Model::spec() const noexcept { return impl_->spec; }
std::vector<Unit>& Model::units() noexcept { return impl_->units; }
const std::vector<Unit>& Model::units() const noexcept { return impl_->units; }
std::vector<Visit>& Model::visits() noexcept { return impl_->visits; }
const std::vector<Visit>& Model::visits() const noexcept { return impl_->visits; }

}  // namespace argosy::model
