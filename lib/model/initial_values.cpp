#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "core/random.hpp"
#include "model/model.hpp"

// Which σ and why. Embeddings d^-½: times √d they enter at variance 1, and a tied output gives logits of variance 1 to
// a normed state. Linear layers Xavier, √(2/(in + out)), taken for each stacked matrix (q, k, v; gate, up) by itself.
// In pre-norm models the last matrix of each residual branch is divided by √(branches), so that the sum of all branches
// starts at the variance of one; post-norm rescales after every branch and needs no such thing.
namespace argosy::model {

namespace {

enum class Role { zero, one, dead_bias, embedding, linear, branch_end };

bool ends_with(const std::string& text, std::string_view end) { return std::string_view(text).ends_with(end); }

Role role_of(const std::string& name) {
  if (ends_with(name, "/gamma")) return Role::one;
  if (name == "decoder/projection/bias") return Role::dead_bias;
  if (ends_with(name, "/beta") || ends_with(name, "/bias")) return Role::zero;
  if (name.find("/embeddings") != std::string::npos || name == "decoder/projection/weight") return Role::embedding;
  if (ends_with(name, "self_attention/linear_1/weight") || ends_with(name, "ffn/linear_1/weight") ||
      ends_with(name, "/attention/linear_2/weight")) {
    return Role::branch_end;
  }
  return Role::linear;
}

double sigma_of(const ModelShape& shape, const partition::ParamSpec& param, Role role) {
  const auto in = static_cast<double>(param.shape.back());
  if (role == Role::embedding) return 1 / std::sqrt(in);
  auto out = static_cast<double>(param.shape.front());
  if (ends_with(param.name, "self_attention/linear_0/weight") || ends_with(param.name, "/attention/linear_0/weight")) {
    out = static_cast<double>(shape.heads * shape.head_size);
  } else if (ends_with(param.name, "/attention/linear_1/weight") && role == Role::linear) {
    out = static_cast<double>(shape.kv_heads * shape.head_size);
  } else if (ends_with(param.name, "ffn/linear_0/weight")) {
    out = static_cast<double>(shape.ff);
  }
  double sigma = std::sqrt(2 / (in + out));
  if (role == Role::branch_end && shape.norm_position == NormPosition::pre) {
    const bool decoder = param.name.starts_with("decoder");
    const std::int64_t branches =
        decoder ? shape.decoder_layers * (shape.type == ModelType::encoder_decoder ? 3 : 2) : shape.encoder_layers * 2;
    sigma /= std::sqrt(static_cast<double>(branches));
  }
  return sigma;
}

std::uint64_t name_hash(const std::string& name) {  // FNV-1a
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

void initial_values(const ModelShape& shape, const partition::ParamSpec& param, std::uint64_t seed, std::int64_t begin,
                    std::int64_t end, float* values) {
  ARGOSY_CHECK(0 <= begin && begin <= end && end <= param.numel(), "[{}, {}) of {}", begin, end, param.name);
  const Role role = role_of(param.name);
  if (role == Role::zero || role == Role::one || role == Role::dead_bias) {
    for (std::int64_t e = begin; e < end; ++e) {
      values[e - begin] = role == Role::one ? 1.0F : role == Role::dead_bias && e >= shape.dead_begin ? -1e4F : 0.0F;
    }
    return;
  }
  const double sigma = sigma_of(shape, param, role);
  const std::uint64_t name = name_hash(param.name);
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  const std::int64_t zero_row =
      role == Role::embedding && shape.type == ModelType::encoder_decoder ? shape.start_id : -1;
  const std::int64_t columns = param.shape.back();
  PhiloxBlock block{};
  std::int64_t block_index = -1;
  for (std::int64_t e = begin; e < end; ++e) {
    if (e / 4 != block_index) {
      block_index = e / 4;
      const auto low = static_cast<std::uint64_t>(block_index);
      block = philox(key, {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                           static_cast<std::uint32_t>(name), static_cast<std::uint32_t>(name >> 32)});
    }
    const auto pair = static_cast<std::size_t>(e % 4 / 2 * 2);
    const double radius = std::sqrt(-2 * std::log((block[pair] + 1.0) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * block[pair + 1] * 0x1p-32;
    const double normal = radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle));
    values[e - begin] = e / columns == zero_row ? 0.0F : static_cast<float>(sigma * normal);
  }
}

}  // namespace argosy::model
