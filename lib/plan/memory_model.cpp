#include "plan/memory_model.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "partition/flat_space.hpp"
#include "plan/step_plan.hpp"
#include "spec/gpu_attention.hpp"
#include "spec/model_spec.hpp"

namespace argosy::plan {

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

BlockElements block_elements(const spec::Architecture& shape, bool cross, Recompute recompute) {
  const auto d = static_cast<double>(shape.width), query = static_cast<double>(shape.heads * shape.head_size),
             kv = static_cast<double>(shape.kv_heads * shape.head_size), ff = static_cast<double>(shape.ff);
  if (recompute == Recompute::block) return {.own = d};
  const bool gated = spec::is_gated(shape.activation);
  // relu overwrites its input: one tensor to keep, until `full` computes it again.
  const bool in_place = shape.activation == spec::Activation::relu;
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

/// Blocks of a side that keep what their backward pass reads.
struct KeptBlocks {
  double encoder = 0, decoder = 0;
};

/// Of the route that has most of them.
KeptBlocks kept_blocks(const spec::ModelSpec& spec) {
  KeptBlocks most;
  for (const std::vector<std::size_t>& route : spec.routes) {
    KeptBlocks kept;
    bool trains = false;  // some unit of a visit up to here
    for (const std::size_t v : route) {
      const spec::Visit& visit = spec.visits[v];
      for (const std::size_t unit : visit.units) trains = trains || !spec.units[unit].frozen;
      if (trains && visit.kind == spec::VisitKind::encoder_block) ++kept.encoder;
      if (trains && visit.kind == spec::VisitKind::decoder_block) ++kept.decoder;
    }
    if (kept.encoder + kept.decoder > most.encoder + most.decoder) most = kept;
  }
  return most;
}

/// Bytes that a GPU takes while it computes the gradients of self-attention over these rows.
double attention_scratch(const spec::Architecture& shape, bool decoder, double positions, double width,
                         const ActivationChoices& choices) {
  const spec::Position position = shape.position(!decoder);
  const bool has_bias = position == spec::Position::t5 || position == spec::Position::alibi;
  const auto values = [&](std::int64_t heads, double bytes) {
    return bytes * positions * static_cast<double>(heads * shape.head_size);
  };
  if (choices.element_bytes != 2 || has_bias || (decoder && shape.prefix_lm) || !spec::is_flash_head(shape.head_size)) {
    constexpr double of_scores = 6, of_keys = 4, of_queries = 4;  // in fp32, when there are most
    return of_scores * static_cast<double>(spec::score_bytes) + values(shape.heads, 4 * (of_keys + of_queries));
  }
  const auto sequences = static_cast<std::int64_t>(decoder ? positions / width : 2 * positions / width);
  if (sequences < 1) return 0;
  const auto [added, parts] = spec::flash_parts(sequences, shape.heads, choices.multiprocessors);
  const std::int64_t heads = shape.heads + (decoder ? added : 0);
  const double sums = values(heads, 4) * static_cast<double>(parts), gradients = 3 * values(heads, 2);
  return sums + gradients + (decoder && added > 0 ? 5 * values(heads, 2) : 0);
}

Part& operator+=(Part& sum, const Part& part) {
  sum.padded += part.padded;
  sum.owned += part.owned;
  sum.held += part.held;
  sum.apart += part.apart;
  return sum;
}
Part operator-(const Part& a, const Part& b) {
  return {a.padded - b.padded, a.owned - b.owned, a.held - b.held, a.apart - b.apart};
}

/// Adds what a unit keeps besides its weights. members: the ranks that have it; empty: all.
void add_kept(std::vector<std::int64_t>& by_rank, const spec::Unit& unit, const partition::FlatSpace& space,
              const std::vector<int>& members, const spec::StateOf& state) {
  for (const spec::StateTensor& tensor : unit.kept(state)) {
    if (tensor.name == spec::weights_tensor) continue;
    const std::vector<spec::OwnedPart> parts =
        spec::owned_parts(tensor.is_flat() ? space : partition::FlatSpace(unit.flat(tensor), space.layout()), tensor);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::size_t rank = members.empty() ? i : static_cast<std::size_t>(members[i]);
      by_rank[rank] += parts[i].size * static_cast<std::int64_t>(size_of(tensor.dtype));
    }
  }
}

}  // namespace

Part SpaceSizes::trained() const { return all - frozen; }

SpaceSizes space_sizes(const spec::ModelSpec& spec, const partition::Layout& layout, const spec::StateOf& state,
                       const Placement& placement, std::optional<int> canonical_rank) {
  ARGOSY_CHECK(canonical_rank || placement.is_everywhere(), "the sizes of which rank?");
  SpaceSizes sizes;
  sizes.layout = layout;
  const PlanShape plan = plan_shape(spec, layout);
  std::vector<partition::Layout> layouts;  // by component
  for (std::size_t c = 0; c < spec.components.size(); ++c) layouts.push_back(placement.layout_of(c, layout));
  std::vector<std::int64_t> state_bytes(static_cast<std::size_t>(layout.world()), 0);  // by rank
  for (std::size_t u = 0; const spec::Unit& unit : spec.units) {
    const partition::Layout& shared = layouts[unit.component];
    const partition::FlatSpace space(unit.flat(), shared);
    const std::int64_t padded = space.padded_size();
    ++sizes.units;
    sizes.parameters += space.parameters();
    sizes.padded += padded;
    const bool rotates = plan.rotates[u++];
    const int member = canonical_rank ? placement.rank_in(unit.component, *canonical_rank) : 0;
    if (member < 0) continue;
    const std::int64_t slots = canonical_rank ? std::ssize(shared.slots_of(member)) : most_slots(shared);
    const std::int64_t owned = padded / (static_cast<std::int64_t>(shared.nodes()) * shared.slots()) * slots;
    const Part part{
        .padded = padded, .owned = owned, .held = padded / shared.slots() * slots, .apart = slots > 1 ? owned : 0};
    sizes.all += part;
    if (rotates) sizes.rotating = std::max(sizes.rotating, padded);
    if (!rotates) sizes.resident += part;
    if (unit.frozen) {
      sizes.frozen += part;
      if (!rotates) sizes.frozen_resident += part;
      continue;
    }
    sizes.largest = std::max(sizes.largest, padded);
    if (rotates) sizes.rotating_trained = std::max(sizes.rotating_trained, padded);
    add_kept(state_bytes, unit, space, placement.members(unit.component), state);
  }
  const std::int64_t slots = most_slots(layout);
  sizes.state.padded = std::accumulate(state_bytes.begin(), state_bytes.end(), std::int64_t{0});
  sizes.state.held = sizes.state.padded / layout.slots() * slots;
  for (int rank = 0; rank < layout.world(); ++rank)
    if (canonical_rank ? rank == canonical_rank : std::ssize(layout.slots_of(rank)) == slots)
      sizes.state.owned = std::max(sizes.state.owned, state_bytes[static_cast<std::size_t>(rank)]);
  return sizes;
}

std::vector<std::int64_t> kept_bytes(const spec::ModelSpec& spec, const partition::Layout& layout,
                                     const spec::StateOf& state, const Placement& placement) {
  std::vector<std::int64_t> by_rank(static_cast<std::size_t>(layout.world()), 0);
  for (const spec::Unit& unit : spec.units) {
    if (unit.frozen) continue;
    const partition::FlatSpace space(unit.flat(), placement.layout_of(unit.component, layout));
    add_kept(by_rank, unit, space, placement.members(unit.component), state);
  }
  return by_rank;
}

namespace {

/// Bytes of `part` under choices.scheme.
StateMemory part_memory(const Part& part, const StateChoices& choices) {
  const std::int64_t w = choices.weight_bytes, g = choices.gradient_bytes;
  const bool is_master = choices.master_bytes == w;  // the weights themselves
  // Where a buffer lives as long as the run and a single slice of it is the rank's, that serves as sum, and as such a
  // master.
  const std::int64_t sums = (choices.reduction == comm::Reduction::elastic ? part.owned : part.apart) * 4;
  const std::int64_t masters = part.owned * choices.master_bytes,
                     optimizer = is_master ? part.apart * choices.master_bytes : masters;
  switch (choices.scheme) {
    case Scheme::stage_1:
      return {.weights = part.padded * w, .gradients = part.padded * g + sums, .optimizer = optimizer};
    case Scheme::stage_2:
      return {.weights = part.padded * w, .gradients = part.owned * 4, .optimizer = optimizer};
    case Scheme::stage_3:  // what is gathered is cast from the master
      return {.gradients = part.owned * 4, .optimizer = masters};
    case Scheme::hybrid:
      return {.weights = part.held * w, .gradients = part.held * g + sums, .optimizer = optimizer};
  }
  return {};
}

/// Bytes that a rank receives before it can sum a unit of `elements` in order: from the other ranks of its node their
/// parts of its slots, then from the other nodes their parts of its slices.
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

/// The same for elastic sums: from every other rank its parts of this rank's slices, in fp32.
std::int64_t elastic_scratch(const partition::Layout& layout, std::int64_t elements) {
  return (layout.world() - 1) * (elements / (layout.nodes() * layout.slots())) * most_slots(layout) * 4;
}

}  // namespace

StateMemory state_memory(const SpaceSizes& sizes, const StateChoices& choices) {
  const Scheme scheme = choices.scheme;
  const bool takes_turns = scheme != Scheme::stage_1;
  StateMemory memory;
  // Units that keep buffers of their own are as under stage 1.
  const auto count = [&](const Part& part, bool keeps_buffers, StateChoices of_part, bool trains) {
    if (takes_turns && keeps_buffers) of_part.scheme = Scheme::stage_1;
    const StateMemory counted = part_memory(part, of_part);
    memory.weights += counted.weights + (trains ? 0 : counted.optimizer);
    if (trains) memory.gradients += counted.gradients;
    if (trains) memory.optimizer += counted.optimizer;
  };
  count(sizes.resident - sizes.frozen_resident, true, choices, true);
  count(sizes.all - sizes.resident - (sizes.frozen - sizes.frozen_resident), false, choices, true);
  StateChoices unchanged = choices;  // a rank's slices of frozen weights are in the compute type, and all it keeps
  unchanged.master_bytes = choices.weight_bytes;
  count(sizes.frozen_resident, true, unchanged, false);
  count(sizes.frozen - sizes.frozen_resident, false, unchanged, false);
  memory.optimizer += sizes.state.owned;
  if (takes_turns) memory.rotating_gradients = 2 * sizes.rotating_trained * choices.gradient_bytes;
  if (takes_turns && scheme != Scheme::stage_2) memory.rotating_weights = 2 * sizes.rotating * choices.weight_bytes;
  memory.scratch = choices.reduction == comm::Reduction::elastic
                       ? elastic_scratch(sizes.layout, sizes.largest)
                       : exact_scratch(sizes.layout, sizes.largest, choices.inner_wire_bytes, choices.outer_wire_bytes);
  return memory;
}

std::int64_t translating_bytes(const SpaceSizes& sizes, Scheme scheme, std::int64_t weight_bytes, bool on_cpu) {
  const std::int64_t gathered = rotates_weights(scheme) ? sizes.all.padded - sizes.resident.padded : 0;
  return weight_bytes * (gathered + (on_cpu ? sizes.all.padded : 0));
}

StateMemory state_memory(const SpaceSizes& sizes, Comparison other, StateChoices choices) {
  choices.scheme = like(other);
  StateMemory memory = state_memory(sizes, choices);
  // Weights that are their own master are stored once.
  const bool is_master = choices.master_bytes == choices.weight_bytes;
  const Part trained = sizes.trained();
  const std::int64_t apart = is_master ? 0 : choices.master_bytes;
  memory.optimizer =
      other == Comparison::ddp ? apart * trained.padded + sizes.state.padded : apart * trained.held + sizes.state.held;
  const Part resident = sizes.resident - sizes.frozen_resident;
  memory.gradients = choices.gradient_bytes *
                     (other == Comparison::ddp ? trained.padded : resident.padded + trained.held - resident.held);
  return memory;
}

ActivationMemory activation_memory(const spec::ModelSpec& spec, const MicroBatch& batch,
                                   const ActivationChoices& choices) {
  const spec::Architecture& shape = spec.architecture;
  const auto bytes = static_cast<double>(choices.element_bytes);
  const auto [encoder, decoder] = kept_blocks(spec);
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
  } else {  // a block that keeps nothing is there while it is computed, when no other is
    if (encoder < static_cast<double>(shape.encoder_layers))
      memory.blocks = std::max(memory.blocks, of_block(false, Recompute::none));
    if (decoder < static_cast<double>(shape.decoder_layers))
      memory.blocks = std::max(memory.blocks, of_block(true, Recompute::none));
  }
  const double moments = shape.norm == spec::Norm::layer_norm ? 2 : 1;  // mean and rstd; rstd
  const double final_norm = shape.norm_position == spec::NormPosition::pre ? 1 : 0;
  const auto heads = static_cast<double>(shape.heads);
  memory.statistics = 4 * heads * (encoder * source + decoder * target * (translation ? 2 : 1)) +
                      4 * moments *
                          (source * (2 * encoder + (translation ? final_norm : 0)) +
                           target * ((translation ? 3 : 2) * decoder + final_norm));
  memory.embedding = 2 * bytes * static_cast<double>(shape.width) * (source + target);
  memory.whole_logits = 2 * bytes * target * static_cast<double>(shape.vocabulary.rows);
  memory.logits = choices.chunk_bytes > 0 ? std::min(static_cast<double>(choices.chunk_bytes), memory.whole_logits)
                                          : memory.whole_logits;
  if (choices.multiprocessors > 0 && decoder + encoder > 0) {
    const bool in_decoder = decoder > 0;
    const double positions = in_decoder ? target : source, width = in_decoder ? batch.target_width : batch.source_width;
    // What the block has computed again, and the gradients on their way, are there as well; the logits are not.
    const double again =
        choices.recompute == Recompute::none || choices.recompute == Recompute::block
            ? 0
            : block_elements(shape, false, Recompute::none).own - block_elements(shape, false, choices.recompute).own;
    const auto gradients = static_cast<double>(2 * shape.width + 2 * (shape.heads + shape.kv_heads) * shape.head_size);
    memory.attention = std::max(0.0, attention_scratch(shape, in_decoder, positions, width, choices) +
                                         bytes * positions * (again + gradients) - memory.logits);
  }
  return memory;
}

}  // namespace argosy::plan
