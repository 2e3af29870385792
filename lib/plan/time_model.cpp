#include "plan/time_model.hpp"

#include <algorithm>
#include <array>

namespace argosy::plan {

namespace {

/// GPU, data sheet: memory, peak. Rates: H100 GEMM at sustained clocks and cuDNN attention at head size 128, T = 8192;
/// A100 GEMM from Fast-LLM's recompute table, FlashAttention-2. Links: NVLink rings, one NIC a GPU (400, 200 Gbit/s).
constexpr std::array<Gpu, 3> kGpus{{
    {"h100", "H100", 79.6, 989.4e12, 640e12, 560e12, 440e12, 2.7e12, 370e9, 45e9},
    {"h200", "H200", 139.8, 989.4e12, 640e12, 560e12, 440e12, 3.9e12, 370e9, 45e9},
    {"a100", "A100", 79.6, 312e12, 282e12, 190e12, 155e12, 1.65e12, 230e9, 22.5e9},
}};

constexpr double kGapPerUnitS = 150e-6;  // between kernels: 5 ms of a 32-block model's 0.7 s
constexpr double kUpdateBytes = 34;      // an element: norm reads 4; AdamW reads g, master, m, v, writes them and bf16
constexpr double kEmaBytes = 12;         // reads master and mean, writes the mean

double fraction(double parts) { return (parts - 1) / parts; }

}  // namespace

const Gpu* gpu_by_name(std::string_view name) {
  const auto found = std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& gpu) { return gpu.name == name; });
  return found == kGpus.end() ? nullptr : &*found;
}

const Gpu* gpu_by_driver_name(std::string_view driver_name) {
  for (const std::string_view other : {"PCIe", "NVL", "40GB", "GH200"}) {  // less memory or other rates
    if (driver_name.find(other) != std::string_view::npos) return nullptr;
  }
  const auto found = std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& gpu) {
    return driver_name.find(gpu.driver_name) != std::string_view::npos;
  });
  return found == kGpus.end() ? nullptr : &*found;
}

std::int64_t capacity_bytes(const Gpu& gpu) {
  return static_cast<std::int64_t>((gpu.memory_gib - kContextGib) * (1LL << 30));
}

telemetry::FlopShape flop_shape(const spec::Architecture& shape) {
  return {.encoder_layers = shape.encoder_layers,
          .decoder_layers = shape.decoder_layers,
          .width = shape.width,
          .ff = shape.ff,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_size = shape.head_size,
          .vocab = shape.vocabulary.rows,
          .ff_matrices = shape.activation == spec::Activation::swiglu ? 3 : 2,
          .window = shape.window};
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
  const telemetry::FlopShape flops = flop_shape(shape);
  const telemetry::Work work = work_of(shape, batch);
  const double linear =
      telemetry::flops_of(flops, {.source_positions = work.source_positions, .target_positions = work.target_positions})
          .causal;
  const double attention = (telemetry::flops_of(flops, work).causal - linear) / 3;  // forward
  const auto d = static_cast<double>(shape.width), ff = static_cast<double>(shape.ff);
  const auto rotated = static_cast<double>((shape.heads + shape.kv_heads) * shape.head_size);
  const auto encoder = static_cast<double>(shape.encoder_layers), decoder = static_cast<double>(shape.decoder_layers);
  const bool gated = shape.activation == spec::Activation::swiglu;
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
          .gaps_s = kGapPerUnitS * (encoder + decoder + 2),
          .forward_s = linear / 3 / gpu.gemm_flops + attention / gpu.attention_forward_flops +
                       bytes * forward / gpu.memory_bytes_per_s + kGapPerUnitS * (encoder + decoder + 2) / 3};
}

std::vector<VisitTime> visit_times(const spec::Architecture& shape, const MicroBatch& batch, Recompute recompute,
                                   std::int64_t element_bytes, const Gpu& gpu) {
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
  const VisitTime embedding{kGapPerUnitS / 3 / embeddings, 2 * kGapPerUnitS / 3 / embeddings};
  const auto rest = [&](double whole, double encoder_s, double decoder_s, double embedding_s) {
    return whole - e * encoder_s - d * decoder_s - embeddings * embedding_s;
  };
  const VisitTime head{rest(all.forward_s, encoder.forward_s, decoder.forward_s, embedding.forward_s) +
                           rest(all.backward_s, encoder.backward_s, decoder.backward_s, embedding.backward_s),
                       0};
  std::vector<VisitTime> visits;
  if (translation) {
    visits.push_back(embedding);
    visits.insert(visits.end(), static_cast<std::size_t>(shape.encoder_layers), encoder);
  }
  visits.push_back(embedding);
  visits.insert(visits.end(), static_cast<std::size_t>(shape.decoder_layers), decoder);
  visits.push_back(head);
  return visits;
}

double optimizer_time(std::int64_t owned, bool ema, const Gpu& gpu) {
  return (kUpdateBytes + (ema ? kEmaBytes : 0)) * static_cast<double>(owned) / gpu.memory_bytes_per_s;
}

double flat_time(const StepInputs& in, double size_bytes) {
  const double n = in.nodes, g = in.ranks_per_node, p = n * g;
  const Links& links = in.links;
  const double latency =
      in.nodes > 1 ? n * links.outer_latency_s + (p - n) * links.inner_latency_s : (p - 1) * links.inner_latency_s;
  return in.units * latency + std::max(in.nodes > 1 ? fraction(p) * size_bytes / links.outer_bytes_per_s : 0.0,
                                       fraction(p) * size_bytes / links.inner_bytes_per_s);
}

double hierarchical_time(const StepInputs& in, double inner_bytes, double outer_bytes) {
  const double n = in.nodes, g = in.ranks_per_node;
  return in.units * ((n - 1) * in.links.outer_latency_s + (g - 1) * in.links.inner_latency_s) +
         std::max(fraction(n) * outer_bytes / in.links.outer_bytes_per_s,
                  fraction(g) * inner_bytes / in.links.inner_bytes_per_s);
}

double inner_time(const StepInputs& in, double size_bytes) {
  const double g = in.ranks_per_node;
  return in.units * (g - 1) * in.links.inner_latency_s + fraction(g) * size_bytes / in.links.inner_bytes_per_s;
}

double outer_time(const StepInputs& in, double size_bytes) {
  if (in.nodes == 1) return 0;
  const double n = in.nodes;
  return in.units * (n - 1) * in.links.outer_latency_s + fraction(n) * size_bytes / in.links.outer_bytes_per_s;
}

double step_time(Scheme scheme, const StepInputs& in, bool flat) {
  const auto inside = [&](double size_bytes) { return inner_time(in, size_bytes); };
  const double weights =
      flat ? flat_time(in, in.weight_bytes) : hierarchical_time(in, in.weight_bytes, in.weight_bytes);
  const double gradients = flat ? flat_time(in, std::max(in.inner_gradient_bytes, in.outer_gradient_bytes))
                                : hierarchical_time(in, in.inner_gradient_bytes, in.outer_gradient_bytes);
  // Breadth-first runs all micro-batches through a unit as if they were one.
  const bool breadth = in.order == AccumulationOrder::breadth_first;
  const double times = breadth ? 1 : in.accumulation;
  const double forward = in.micro_batch_s / 3 * (breadth ? in.accumulation : 1), backward = 2 * forward;
  const auto exposed = [](double communication, double beside) { return std::max(0.0, communication - beside); };
  switch (scheme) {
    case Scheme::replicated:
      return times * (forward + backward) + exposed(2 * gradients, backward);
    case Scheme::stage_1:
      return times * (forward + backward) + exposed(gradients, backward) + exposed(weights, forward);
    case Scheme::stage_2:
      return times * (forward + std::max(backward, gradients)) + exposed(weights, forward);
    case Scheme::stage_3:
      return times * (std::max(forward, weights) + std::max(backward, weights + gradients));
    case Scheme::hybrid:
    case Scheme::hsdp: {
      const double within = times * (std::max(forward, inside(in.weight_bytes)) +
                                     std::max(backward, inside(in.weight_bytes) + inside(in.inner_gradient_bytes)));
      if (scheme == Scheme::hsdp) return within + exposed(2 * outer_time(in, in.outer_gradient_bytes), backward);
      return within + exposed(gradients, backward) + exposed(weights, forward);
    }
  }
  return 0;
}

}  // namespace argosy::plan
