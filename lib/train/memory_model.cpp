#include "train/memory_model.hpp"

#include <algorithm>

#include "model/units.hpp"
#include "partition/flat_space.hpp"
#include "train/step_plan.hpp"

namespace argosy::train {

namespace {

/// Slots of the rank that owns most.
std::int64_t most_slots(const partition::Layout& layout) {
  const int smallest = *std::min_element(layout.node_sizes().begin(), layout.node_sizes().end());
  return (layout.slots() + smallest - 1) / smallest;
}

/// Matrix inputs of one block for a position of its own side, elements; `source` for each source position.
struct BlockElements {
  double own = 0, source = 0;
};

BlockElements block_elements(const model::ModelShape& shape, bool cross, Recompute recompute) {
  const auto d = static_cast<double>(shape.width), query = static_cast<double>(shape.heads * shape.head_size),
             kv = static_cast<double>(shape.kv_heads * shape.head_size), ff = static_cast<double>(shape.ff);
  if (recompute == Recompute::block) return {.own = d};
  const bool gated = shape.activation == model::Activation::swiglu;
  // relu overwrites its input: one tensor to keep, until `full` computes it again.
  const bool in_place = shape.activation == model::Activation::relu;
  const double products = recompute == Recompute::none && !in_place ? ff : 0;
  const double inner = recompute == Recompute::full ? 0 : (gated ? 2 : 1) * ff;
  // Self-attention: block input, norm, query, keys and values, output; feed-forward: input, norm, inner values.
  BlockElements elements{.own = 4 * d + 2 * query + 2 * kv + inner + products};
  if (cross) {
    elements.own += 2 * d + 2 * query;  // input, norm, query, output
    elements.source = 2 * kv;           // keys and values of the encoder's output
  }
  return elements;
}

}  // namespace

SpaceSizes space_sizes(const model::ModelShape& shape, const partition::Layout& layout) {
  SpaceSizes sizes{.layout = layout};
  const PlanShape plan = plan_shape(shape, layout);
  for (std::size_t u = 0; const model::UnitSpec& unit : model::unit_specs(shape)) {
    const partition::FlatSpace space(unit.params, layout);
    const std::int64_t padded = space.padded_size();
    ++sizes.units;
    sizes.parameters += space.parameters();
    sizes.padded += padded;
    sizes.largest = std::max(sizes.largest, padded);
    if (plan.rotates[u++]) {
      sizes.rotating = std::max(sizes.rotating, padded);
    } else {
      sizes.resident += padded;
    }
  }
  const std::int64_t slots = most_slots(layout);
  sizes.one_slice = layout.nodes() * layout.slots() == layout.world();
  sizes.owned = sizes.padded / (static_cast<std::int64_t>(layout.nodes()) * layout.slots()) * slots;
  sizes.held = sizes.padded / layout.slots() * slots;
  sizes.resident_held = sizes.resident / layout.slots() * slots;
  return sizes;
}

StateMemory state_memory(const SpaceSizes& sizes, const StateChoices& choices) {
  const std::int64_t w = choices.weight_bytes, g = choices.gradient_bytes;
  const bool has_master = w < 4;
  const std::int64_t moments = has_master ? 12 : 8;  // master, m, v; in fp32 the weights are the master
  // Where weights lie whole or by slot, the own slice of the buffers serves as master (fp32) and as sum of gradients.
  const bool in_place = sizes.one_slice;
  const std::int64_t world_sharded = sizes.owned * (in_place ? moments : 12);
  StateMemory memory;
  switch (choices.scheme) {
    case Scheme::replicated:
      memory = {.weights = sizes.padded * w, .gradients = sizes.padded * g, .optimizer = sizes.padded * moments};
      break;
    case Scheme::stage_1:
      memory = {.weights = sizes.padded * w,
                .gradients = sizes.padded * g + (in_place ? 0 : sizes.owned * 4),
                .optimizer = world_sharded};
      break;
    case Scheme::stage_2:
      memory = {.weights = sizes.padded * w,
                .gradients = sizes.owned * 4 + sizes.resident * g,
                .optimizer = world_sharded,
                .rotating_gradients = 2 * sizes.rotating * g};
      break;
    case Scheme::stage_3:
      memory = {.weights = sizes.resident * w,
                .gradients = sizes.owned * 4 + sizes.resident * g,
                .optimizer = sizes.owned * 12,  // the slice is cast from the master when it is gathered
                .rotating_weights = 2 * sizes.rotating * w,
                .rotating_gradients = 2 * sizes.rotating * g};
      break;
    case Scheme::hybrid:
    case Scheme::hsdp: {
      const std::int64_t held = sizes.held - sizes.resident_held + sizes.resident;
      const bool copies = choices.scheme == Scheme::hybrid && !in_place;
      memory = {.weights = held * w,
                .gradients = held * g + (copies ? sizes.owned * 4 : 0),
                .optimizer = choices.scheme == Scheme::hybrid ? world_sharded : sizes.held * moments,
                .rotating_weights = 2 * sizes.rotating * w,
                .rotating_gradients = 2 * sizes.rotating * g};
      break;
    }
  }
  memory.scratch = exact_scratch(sizes.layout, sizes.largest, choices.inner_wire_bytes, choices.outer_wire_bytes);
  return memory;
}

std::int64_t exact_scratch(const partition::Layout& layout, std::int64_t elements, std::int64_t inner_wire_bytes,
                           std::int64_t outer_wire_bytes) {
  std::int64_t most = 0;
  const std::int64_t slice = elements / (static_cast<std::int64_t>(layout.nodes()) * layout.slots());
  for (const int size : layout.node_sizes()) {
    const std::int64_t slots = (layout.slots() + size - 1) / size;
    const std::int64_t inner = (size - 1) * slots * slice * layout.nodes() * inner_wire_bytes;
    most = std::max(most, inner + (layout.nodes() - 1) * slots * slice * outer_wire_bytes);
  }
  return most;
}

ActivationMemory activation_memory(const model::ModelShape& shape, const MicroBatch& batch,
                                   const ActivationChoices& choices) {
  const auto bytes = static_cast<double>(choices.element_bytes);
  const auto encoder = static_cast<double>(shape.encoder_layers), decoder = static_cast<double>(shape.decoder_layers);
  const double source = batch.source_positions, target = batch.target_positions;
  const bool translation = shape.encoder_layers > 0;
  const auto of_block = [&](bool is_decoder, Recompute recompute) {
    const BlockElements elements = block_elements(shape, is_decoder && translation, recompute);
    return bytes * (is_decoder ? elements.own * target + elements.source * source : elements.own * source);
  };
  ActivationMemory memory;
  memory.blocks = encoder * of_block(false, choices.recompute) + decoder * of_block(true, choices.recompute);
  if (choices.recompute == Recompute::block) {
    memory.recomputed = std::max(of_block(true, Recompute::none), translation ? of_block(false, Recompute::none) : 0.0);
  }
  const double moments = shape.norm == model::Norm::layer_norm ? 2 : 1;  // mean and rstd; rstd
  const double final_norm = shape.norm_position == model::NormPosition::pre ? 1 : 0;
  const auto heads = static_cast<double>(shape.heads);
  memory.statistics = 4 * heads * (encoder * source + decoder * target * (translation ? 2 : 1)) +
                      4 * moments *
                          (source * (2 * encoder + (translation ? final_norm : 0)) +
                           target * ((translation ? 3 : 2) * decoder + final_norm));
  memory.embedding = 2 * bytes * static_cast<double>(shape.width) * (source + target);
  memory.whole_logits = 2 * bytes * target * static_cast<double>(shape.vocab_padded);
  memory.logits = choices.chunk_bytes > 0 ? std::min(static_cast<double>(choices.chunk_bytes), memory.whole_logits)
                                          : memory.whole_logits;
  return memory;
}

}  // namespace argosy::train
