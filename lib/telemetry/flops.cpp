#include "telemetry/flops.hpp"

namespace argosy::telemetry {

void Work::add_row(std::int64_t source, std::int64_t target, std::optional<std::int64_t> window) {
  const auto s = static_cast<double>(source), t = static_cast<double>(target);
  source_positions += s;
  target_positions += t;
  encoder_pairs += s * s;
  cross_pairs += s * t;
  decoder_pairs_full += t * t;
  if (window && *window < target) {
    const auto w = static_cast<double>(*window);
    decoder_pairs += w * t - w * w / 2;
  } else {
    decoder_pairs += t * t / 2;
  }
}

Work& Work::operator+=(const Work& other) {
  source_positions += other.source_positions;
  target_positions += other.target_positions;
  encoder_pairs += other.encoder_pairs;
  decoder_pairs += other.decoder_pairs;
  decoder_pairs_full += other.decoder_pairs_full;
  cross_pairs += other.cross_pairs;
  return *this;
}

Flops flops_of(const FlopShape& shape, const Work& work) {
  const auto d = static_cast<double>(shape.width);
  const auto q = static_cast<double>(shape.heads * shape.head_size);
  const auto kv = static_cast<double>(shape.kv_heads * shape.head_size);
  const auto encoder = static_cast<double>(shape.encoder_layers), decoder = static_cast<double>(shape.decoder_layers);
  const double ff = d * static_cast<double>(shape.ff) * shape.ff_matrices;
  const double query_and_output = 2 * d * q, key_and_value = 2 * d * kv;
  const bool cross = shape.encoder_layers > 0;

  // Each decoder block computes keys and values of cross-attention from the source positions.
  const double source = encoder * (query_and_output + key_and_value + ff) + (cross ? decoder * key_and_value : 0);
  const double target =
      decoder * (query_and_output * (cross ? 2 : 1) + key_and_value + ff) + d * static_cast<double>(shape.vocab);
  const double linear = source * work.source_positions + target * work.target_positions;
  const double extra = shape.source_extra * work.source_positions + shape.target_extra * work.target_positions;
  // Passes over the pairs, in units of forward and backward pass. Scores and weighted values: two multiply-adds a pair
  // and channel.
  const double around_encoder = encoder - static_cast<double>(shape.encoder_forward_only) * 2 / 3;
  const double around_decoder = decoder - static_cast<double>(shape.decoder_forward_only) * 2 / 3;
  const double around = around_encoder * work.encoder_pairs + (cross ? around_decoder * work.cross_pairs : 0);
  const auto total = [&](double decoder_pairs) {
    return 6 * linear + extra + 12 * q * (around + around_decoder * decoder_pairs);
  };
  return {.causal = total(work.decoder_pairs), .full = total(work.decoder_pairs_full)};
}

double exact_pairs(std::int64_t length, std::optional<std::int64_t> window) {
  const auto triangle = [](double n) { return n * (n + 1) / 2; };
  const auto t = static_cast<double>(length);
  if (!window || *window >= length) return triangle(t);
  return triangle(t) - triangle(t - static_cast<double>(*window));
}

std::optional<double> bf16_peak_flops(std::string_view device_name) {
  struct Peak {
    std::string_view part;
    double tera;
  };
  // The longer name first. NVIDIA's data sheets, without sparsity.
  constexpr Peak peaks[] = {{"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989.4}, {"H200", 989.4},
                            {"GH200", 989.4},   {"A100", 312},     {"L40S", 362}};
  for (const Peak& peak : peaks) {
    if (device_name.find(peak.part) != std::string_view::npos) return peak.tera * 1e12;
  }
  return std::nullopt;
}

}  // namespace argosy::telemetry
