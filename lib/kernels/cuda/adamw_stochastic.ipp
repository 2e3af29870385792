// The work of one thread of adamw_stochastic.cu, apart from it so that a test can run it on the host.
#include <Random123/philox.h>

#include <cmath>
#include <cstring>

#include "kernels/cuda/entries.hpp"
#include "kernels/stochastic.hpp"

namespace argosy::kernels {

/// The eight elements that share Philox block begin/8 + `block`: 16 apart, two for each word.
ARGOSY_EVERYWHERE inline void update_block(const AdamwStochasticCall& call, std::int64_t block) {
  const std::int64_t first = block / 16 * 128 + block % 16;
  const float clip = *call.coefficient;
  if (clip < 0) return;
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const r123::Philox4x32::ctr_type counter{
      {low(static_cast<std::uint64_t>(call.begin / 8 + block)), call.parameter, call.step, rounding_domain}};
  const r123::Philox4x32::key_type key{{low(call.seed), low(call.seed >> 32)}};
  const r123::Philox4x32::ctr_type words = r123::Philox4x32{}(counter, key);
  for (int k = 0; k < 8; ++k) {
    const std::int64_t i = first + 16 * k;
    if (i >= call.n) return;
    const std::uint32_t wide = static_cast<std::uint32_t>(call.weights[i]) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    const float g = call.gradient[i] * clip;
    const float m = call.m[i] * call.beta1 + g * call.new_m, v = call.v[i] * call.beta2 + g * g * call.new_v;
    call.m[i] = m;
    call.v[i] = v;
    value = value * call.keep - call.rate * m / (std::sqrt(v * call.spread) + call.epsilon);
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t r = words[static_cast<unsigned>(k / 2)] >> (16 * (k % 2));
    call.weights[i] = static_cast<std::uint16_t>(round_stochastically(bits, r) >> 16);
  }
}

}  // namespace argosy::kernels
