#include "plan/time_model.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <string>

#include "spec/fine_tuning.hpp"

namespace argosy::plan {

namespace {

/// GPU, data sheet: memory, peak. Rates of the H200: measured with this code on 27 November 2026 (one GPU,
/// LibTorch 2.11, scripts/gpu_check and train --profile): products in training, attention at head size 128 and T = 8192
/// with equal bits, element-wise kernels on average. All others are published figures of other programs: H100 GEMM at
/// sustained clocks and cuDNN attention; A100 GEMM from Fast-LLM's recompute table, FlashAttention-2. Links: NVLink
/// rings, one NIC a GPU (400, 200 Gbit/s). fp32: about 3/4 (H100, which slows down under power) and 9/10 of the peak.
constexpr Rate with_this_code(double per_s) { return {per_s, true}; }
constexpr std::array<Gpu, 3> gpus{{
    {"h100", "H100", 79.6, 989.4e12, 640e12, 560e12, 440e12, 2.7e12, 370e9, 45e9, 50e12, 132},
    {"h200", "H200", 139.8, 989.4e12, with_this_code(766e12), with_this_code(590e12), with_this_code(216e12),
     with_this_code(3.2e12), 370e9, 45e9, 50e12, 132},
    {"a100", "A100", 79.6, 312e12, 282e12, 190e12, 155e12, 1.65e12, 230e9, 22.5e9, 18e12, 108},
}};

constexpr double gap_per_unit_s = 150e-6;  // between kernels: 5 ms of a 32-block model's 0.7 s

double fraction(double parts) { return (parts - 1) / parts; }

/// A matrix of a visit in whose work a model with frozen parts differs from one without. products: how many products
/// more than forward, gradient of the input and gradient of the matrix, or less.
struct OtherWork {
  std::size_t visit;
  const spec::Parameter& matrix;
  int products;
  bool of_source;  // it multiplies source positions
};

/// Of the visits of these routes, each once. Also counts visits of blocks that need no backward pass, by side.
template <class Use>
void each_other_work(const spec::ModelSpec& spec, std::span<const std::vector<std::size_t>> routes,
                     std::int64_t& encoder_forward_only, std::int64_t& decoder_forward_only, const Use& use) {
  std::set<std::string> of_source;  // in the decoder: they multiply the encoder's output
  for (const spec::Unit& unit : spec.units) {
    for (const spec::Parameter& parameter : unit.parameters) {
      if (parameter.role != spec::Role::attention_key_value) continue;
      of_source.insert(parameter.name);
      if (const auto adapters = spec::adapter_names(parameter.name)) of_source.insert({adapters->down, adapters->up});
    }
  }
  std::map<std::size_t, bool> trains_at;  // by visit: some unit of it, or of one before it on a route
  for (const std::vector<std::size_t>& route : routes) {
    bool trains = false;
    for (const std::size_t v : route) {
      for (const std::size_t unit : spec.visits[v].units) trains = trains || !spec.units[unit].frozen;
      trains_at[v] = trains_at[v] || trains;
    }
  }
  for (const auto& [v, trains] : trains_at) {
    const spec::Visit& visit = spec.visits[v];
    const bool encoder = visit.kind == spec::VisitKind::encoder_block;
    if (visit.kind == spec::VisitKind::source || visit.kind == spec::VisitKind::target) continue;  // no products
    if (!trains && visit.kind != spec::VisitKind::head) ++(encoder ? encoder_forward_only : decoder_forward_only);
    for (const std::size_t u : visit.units) {
      for (const spec::Parameter& parameter : spec.units[u].parameters) {
        const bool is_head = parameter.role == (spec.architecture.tie_embeddings ? spec::Role::target_embedding
                                                                                 : spec::Role::head_weight);
        if (parameter.shape.size() != 2 || (visit.kind == spec::VisitKind::head) != is_head ||
            parameter.role == spec::Role::relative_bias)
          continue;
        const int products = parameter.is_adapter() ? 3 : !spec.units[u].frozen ? 0 : trains ? -1 : -2;
        if (products != 0) use(OtherWork{v, parameter, products, encoder || of_source.contains(parameter.name)});
      }
    }
  }
}

/// Two operations an element, for each position.
double operations(const OtherWork& work) { return 2.0 * work.products * static_cast<double>(work.matrix.numel()); }

}  // namespace

const Gpu* gpu_by_name(std::string_view name) {
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.name == name; });
  return found == gpus.end() ? nullptr : &*found;
}

const Gpu* gpu_by_driver_name(std::string_view driver_name) {
  for (const std::string_view other : {"PCIe", "NVL", "40GB", "GH200"}) {  // less memory or other rates
    if (driver_name.find(other) != std::string_view::npos) return nullptr;
  }
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
    return driver_name.find(gpu.driver_name) != std::string_view::npos;
  });
  return found == gpus.end() ? nullptr : &*found;
}

std::array<NamedRate, 7> rates_of(const Gpu& gpu) {
  constexpr std::string_view flops = "TFLOP/s", bytes = "TB/s";
  return {{{"gemm_flops", "matrix products", flops, gpu.gemm_flops},
           {"fp32_flops", "in fp32", flops, gpu.fp32_flops},
           {"attention_forward_flops", "attention forward", flops, gpu.attention_forward_flops},
           {"attention_backward_flops", "backward", flops, gpu.attention_backward_flops},
           {"memory_bytes_per_s", "memory", bytes, gpu.memory_bytes_per_s},
           {"inner_bytes_per_s", "network in a node", bytes, gpu.inner_bytes_per_s},
           {"outer_bytes_per_s", "out of it", bytes, gpu.outer_bytes_per_s}}};
}

std::int64_t capacity_bytes(const Gpu& gpu) {
  return static_cast<std::int64_t>((gpu.memory_gib - context_gib) * (1LL << 30));
}

telemetry::FlopShape flop_shape(const spec::ModelSpec& spec) {
  const spec::Architecture& shape = spec.architecture;
  telemetry::FlopShape flops{.encoder_layers = shape.encoder_layers,
                             .decoder_layers = shape.decoder_layers,
                             .width = shape.width,
                             .ff = shape.ff,
                             .heads = shape.heads,
                             .kv_heads = shape.kv_heads,
                             .head_size = shape.head_size,
                             .vocab = shape.vocabulary.rows,
                             .ff_matrices = spec::is_gated(shape.activation) ? 3 : 2,
                             .window = shape.window};
  const std::span first{spec.routes.data(), 1};
  each_other_work(spec, first, flops.encoder_forward_only, flops.decoder_forward_only, [&](const OtherWork& work) {
    (work.of_source ? flops.source_extra : flops.target_extra) += operations(work);
  });
  return flops;
}

telemetry::Work work_of(const spec::Architecture& shape, const MicroBatch& batch) {
  telemetry::Work row;
  row.add_row(static_cast<std::int64_t>(batch.source_width), static_cast<std::int64_t>(batch.target_width),
              shape.window);
  const double rows = batch.target_width > 0 ? batch.target_positions / batch.target_width : 0;
  return {.source_positions = batch.source_positions,
          .target_positions = batch.target_positions,
          .encoder_pairs = rows * row.encoder_pairs,
          .decoder_pairs = rows * row.decoder_pairs,
          .decoder_pairs_full = rows * row.decoder_pairs_full,
          .cross_pairs = rows * row.cross_pairs};
}

ComputeTime compute_time(const spec::Architecture& shape, const MicroBatch& batch, Recompute recompute,
                         std::int64_t element_bytes, const Gpu& gpu) {
  const telemetry::FlopShape flops = flop_shape(spec::as_plain(shape));
  const telemetry::Work work = work_of(shape, batch);
  const double linear =
      telemetry::flops_of(flops, {.source_positions = work.source_positions, .target_positions = work.target_positions})
          .causal;
  const double attention = (telemetry::flops_of(flops, work).causal - linear) / 3;  // forward
  const auto d = static_cast<double>(shape.width), ff = static_cast<double>(shape.ff);
  const auto rotated = static_cast<double>((shape.heads + shape.kv_heads) * shape.head_size);
  const auto encoder = static_cast<double>(shape.encoder_layers), decoder = static_cast<double>(shape.decoder_layers);
  const bool gated = spec::is_gated(shape.activation);
  const double positions = encoder * batch.source_positions + decoder * batch.target_positions;  // through blocks
  const double norms = 2 * positions + (encoder > 0 ? decoder * batch.target_positions : 0);
  const auto rotating = [](spec::Position position) { return position == spec::Position::rope ? 1.0 : 0.0; };
  const double rotations = encoder * batch.source_positions * rotating(shape.encoder_position) +
                           decoder * batch.target_positions * rotating(shape.decoder_position);
  // Elements read and written, forward and backward: residual and norm 4 + 4 (with statistics of its weight), rotary
  // positions 2 + 2, gate and product 3 + 5 (one input: 2 + 3).
  const double forward = 4 * d * norms + 2 * rotated * rotations + (gated ? 3 : 2) * ff * positions;
  const double backward = 4 * d * norms + 2 * rotated * rotations + (gated ? 5 : 3) * ff * positions;
  double again_linear = 0, again_attention = 0, again_elements = 0;
  switch (recompute) {
    case Recompute::none:
      break;
    case Recompute::activation:
      again_elements = ff * positions;  // the backward kernel writes it on its way
      break;
    case Recompute::full:
      again_linear = 2 * d * ff * (flops.ff_matrices - 1) * positions;
      again_elements = (gated ? 3 : 2) * ff * positions;
      break;
    case Recompute::block:
      again_linear = linear / 3 - 2 * d * static_cast<double>(shape.vocabulary.rows) * batch.target_positions;
      again_attention = attention;
      again_elements = forward;
      break;
  }
  const auto bytes = static_cast<double>(element_bytes);
  // The backward pass of attention counts twice the forward one and does 2.5 times its work.
  return {.gemm_s = (linear + again_linear) / gpu.gemm_flops,
          .attention_s = (attention + again_attention) / gpu.attention_forward_flops +
                         2.5 * attention / gpu.attention_backward_flops,
          .elementwise_s = bytes * (forward + backward + again_elements) / gpu.memory_bytes_per_s,
          .gaps_s = gap_per_unit_s * (encoder + decoder + 2),
          .forward_s = linear / 3 / gpu.gemm_flops + attention / gpu.attention_forward_flops +
                       bytes * forward / gpu.memory_bytes_per_s + gap_per_unit_s * (encoder + decoder + 2) / 3};
}

std::vector<VisitTime> visit_times(const spec::ModelSpec& spec, const MicroBatch& batch, Recompute recompute,
                                   std::int64_t element_bytes, const Gpu& gpu) {
  const spec::Architecture& shape = spec.architecture;
  const auto time = [&](std::int64_t more_encoder, std::int64_t more_decoder) {
    spec::Architecture other = shape;
    other.encoder_layers += more_encoder;
    other.decoder_layers += more_decoder;
    const ComputeTime all = compute_time(other, batch, recompute, element_bytes, gpu);
    return VisitTime{all.forward_s, all.total_s() - all.forward_s};
  };
  const VisitTime all = time(0, 0);
  const auto one_more = [&](const VisitTime& with) {
    return VisitTime{with.forward_s - all.forward_s, with.backward_s - all.backward_s};
  };
  const bool translation = shape.encoder_layers > 0;
  const VisitTime encoder = translation ? one_more(time(1, 0)) : VisitTime{}, decoder = one_more(time(0, 1));
  const auto e = static_cast<double>(shape.encoder_layers), d = static_cast<double>(shape.decoder_layers);
  const double embeddings = translation ? 2 : 1;
  const VisitTime embedding{gap_per_unit_s / 3 / embeddings, 2 * gap_per_unit_s / 3 / embeddings};
  const auto rest = [&](double whole, double encoder_s, double decoder_s, double embedding_s) {
    return whole - e * encoder_s - d * decoder_s - embeddings * embedding_s;
  };
  const VisitTime head{rest(all.forward_s, encoder.forward_s, decoder.forward_s, embedding.forward_s) +
                           rest(all.backward_s, encoder.backward_s, decoder.backward_s, embedding.backward_s),
                       0};
  std::vector<VisitTime> visits;
  for (const spec::Visit& visit : spec.visits) {
    const bool embeds = visit.kind == spec::VisitKind::source || visit.kind == spec::VisitKind::target;
    visits.push_back(embeds                                         ? embedding
                     : visit.kind == spec::VisitKind::encoder_block ? encoder
                     : visit.kind == spec::VisitKind::decoder_block ? decoder
                                                                    : head);
  }
  std::int64_t none = 0;  // the step plan has no backward pass of them
  each_other_work(spec, spec.routes, none, none, [&](const OtherWork& work) {
    const double seconds =
        operations(work) * (work.of_source ? batch.source_positions : batch.target_positions) / gpu.gemm_flops;
    VisitTime& visit = visits[work.visit];
    if (spec.visits[work.visit].kind == spec::VisitKind::head) {
      visit.forward_s += seconds;
    } else if (work.products > 0) {
      visit.forward_s += seconds / 3;
      visit.backward_s += seconds * (recompute == Recompute::block ? 1 : 2.0 / 3);
    } else {
      visit.backward_s = work.products < -1 ? 0 : visit.backward_s + seconds;
    }
  });
  return visits;
}

UpdateTime optimizer_time(const UpdateShare& share, const Gpu& gpu) {
  const auto elements = static_cast<double>(share.elements);
  constexpr double gradient_bytes = 4;  // read for the norm, and again for the update
  // Master and state are read and written, and weights apart from the master written. A mean, which is state, also
  // reads the master once more.
  const std::int64_t weights = share.master_bytes == share.weight_bytes ? 0 : share.weight_bytes;
  const double each = gradient_bytes + static_cast<double>(2 * share.master_bytes + weights + (share.ema ? 4 : 0));
  return {.norm_s = gradient_bytes * elements / gpu.memory_bytes_per_s,
          .update_s = (each * elements + 2 * static_cast<double>(share.state_bytes)) / gpu.memory_bytes_per_s};
}

double muon_time(const spec::Unit& unit, std::size_t index, int ranks, std::int64_t element_bytes, const Gpu& gpu) {
  constexpr double steps = 5;
  std::vector<double> flops(static_cast<std::size_t>(ranks), 0);  // by rank
  for (std::size_t owner = index; const spec::Matrix& matrix : unit.matrices()) {
    const auto small = static_cast<double>(std::min(matrix.rows, matrix.columns)),
               large = static_cast<double>(std::max(matrix.rows, matrix.columns));
    double& own = flops[owner++ % flops.size()];
    // X Xᵀ, its square, and a polynomial of both times X.
    if (matrix.parameter->decay) own += steps * 2 * (2 * small * small * large + small * small * small);
  }
  return *std::max_element(flops.begin(), flops.end()) / (element_bytes == 4 ? gpu.fp32_flops : gpu.gemm_flops);
}

namespace {

/// Nodes, and ranks of each, that share a component.
std::pair<double, double> ranks_of(const CostInputs& in, std::size_t group) {
  return in.groups.empty() ? std::pair{in.nodes, in.ranks_per_node} : in.groups[group];
}

/// Seconds of `bytes` of a unit on a ring inside each node and a ring between nodes, which run at the same time.
double ring_time(const CostInputs& in, std::size_t group, comm::Levels levels, double inner_bytes, double outer_bytes) {
  const auto [n, g] = ranks_of(in, group);
  const bool inside = levels != comm::Levels::outer, across = levels != comm::Levels::inner;
  return (across ? (n - 1) * in.links.outer_latency_s : 0) + (inside ? (g - 1) * in.links.inner_latency_s : 0) +
         std::max(across ? fraction(n) * outer_bytes / in.links.outer_bytes_per_s : 0,
                  inside ? fraction(g) * inner_bytes / in.links.inner_bytes_per_s : 0);
}

/// Every rank sends every owner its slices: as many bytes out of a node as it has ranks times the other nodes' share.
double elastic_time(const CostInputs& in, std::size_t group, double elements) {
  const auto [n, g] = ranks_of(in, group);
  const double bytes = 4 * elements;
  return (n - 1) * g * in.links.outer_latency_s + (g - 1) * in.links.inner_latency_s +
         std::max(g * fraction(n) * bytes / in.links.outer_bytes_per_s,
                  fraction(g) / n * bytes / in.links.inner_bytes_per_s);
}

}  // namespace

OpCost op_cost(const CostInputs& in, std::span<const partition::FlatSpace> spaces) {
  std::vector<double> elements;
  double all = 0;  // that are updated
  for (std::size_t u = 0; u < spaces.size(); ++u) {
    elements.push_back(static_cast<double>(spaces[u].padded_size()));
    if (!in.frozen.contains(u)) all += elements.back();
  }
  return [in, elements, all](const Op& op) {
    const double size = op.unit < 0 ? 0 : elements[static_cast<std::size_t>(op.unit)];
    const auto bytes = [&](std::int64_t of_element) { return size * static_cast<double>(of_element); };
    switch (op.kind) {
      case OpKind::forward:
        return in.visits[static_cast<std::size_t>(op.visit)].forward_s;
      case OpKind::backward:
        return in.visits[static_cast<std::size_t>(op.visit)].backward_s;
      case OpKind::norm:
        return in.update.norm_s;
      case OpKind::update:
        return in.update.update_s * size / all;
      case OpKind::reduce:
        if (in.reduction == comm::Reduction::elastic) return elastic_time(in, op.group, size);
        break;
      case OpKind::gather:
      case OpKind::to_owners:
      case OpKind::to_shards:
        break;
    }
    // The matrices are computed between their arrival and their way back.
    const bool computes = op.kind == OpKind::to_shards && !in.matrices_s.empty();
    double seconds = computes ? in.matrices_s[static_cast<std::size_t>(op.unit)] : 0;
    for (const Collective& what : collectives_of(op, in.other)) {
      const auto [inner, outer] = element_bytes(what.payload, in.wire);
      seconds += ring_time(in, op.group, what.levels, bytes(inner), bytes(outer));
    }
    return seconds;
  };
}

}  // namespace argosy::plan
