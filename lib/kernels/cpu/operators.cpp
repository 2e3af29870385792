#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/access.hpp"
#include "kernels/device_table.hpp"
#include "kernels/stochastic.hpp"

namespace argosy::kernels::cpu {

namespace {

/// Runs `block(first_row, count, partial)` for blocks of rows, then adds the partial sums [stride] to the targets in
/// order.
struct Target {
  float* sum;  // null: not wanted
  std::int64_t offset, width;
};
template <class Block>
void two_stage(std::int64_t rows, std::int64_t stride, bool accumulate, std::initializer_list<Target> targets,
               Block&& block) {
  const std::int64_t blocks = (rows + row_block - 1) / row_block;
  const at::Tensor partials = at::empty({blocks, stride}, at::kFloat);
  float* const partial = partials.mutable_data_ptr<float>();
  at::parallel_for(0, blocks, grain(row_block * stride), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      block(b * row_block, std::min(row_block, rows - b * row_block), partial + b * stride);
    }
  });
  for (const Target& target : targets) {
    if (target.sum == nullptr) continue;
    at::parallel_for(0, target.width, grain(blocks), [&](std::int64_t begin, std::int64_t end) {
      table().sum_partials(partial + target.offset + begin, target.sum + begin, blocks, stride, end - begin,
                           accumulate);
    });
  }
}

RandomName random_name(std::uint64_t seed, std::int64_t second, std::int64_t third, std::int64_t fourth) {
  return {seed, static_cast<std::uint32_t>(second), static_cast<std::uint32_t>(third),
          static_cast<std::uint32_t>(fourth)};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& x_in, const at::Tensor& weight,
                                                    const OptionalTensor& bias, double epsilon, bool rms) {
  const at::Tensor x = x_in.contiguous();
  const std::int64_t rows = x.size(0), width = x.size(1);
  at::Tensor y = at::empty_like(x), mean = at::empty({rms ? 0 : rows}, at::kFloat),
             rstd = at::empty({rows}, at::kFloat);
  with_type(x, [&]<class T>(T*) {
    const auto& loops = table().loops<T>();
    const T *from = pointer<T>(x), *scale = pointer<T>(weight), *shift = pointer<T>(bias);
    T* to = pointer<T>(y);
    float *centre = pointer<float>(mean), *r = pointer<float>(rstd);
    at::parallel_for(0, rows, grain(width), [&](std::int64_t begin, std::int64_t end) {
      loops.norm(from + begin * width, scale, shift, to + begin * width, rms ? nullptr : centre + begin, r + begin,
                 end - begin, width, epsilon);
    });
  });
  return {y, mean, rstd};
}

at::Tensor norm_backward(const at::Tensor& dy_in, const at::Tensor& x_in, const at::Tensor& weight,
                         const at::Tensor& mean, const at::Tensor& rstd, const OptionalTensor& add_in,
                         const OptionalTensor& dweight, const OptionalTensor& dbias, bool accumulate, bool rms) {
  const at::Tensor dy = dy_in.contiguous(), x = x_in.contiguous();
  const OptionalTensor add = add_in ? OptionalTensor(add_in->contiguous()) : std::nullopt;
  const std::int64_t rows = x.size(0), width = x.size(1);
  at::Tensor dx = at::empty_like(x);
  with_type(x, [&]<class T>(T*) {
    const T *gradient = pointer<T>(dy), *from = pointer<T>(x), *scale = pointer<T>(weight), *residual = pointer<T>(add);
    const float *centre = pointer<float>(mean), *r = pointer<float>(rstd);
    T* to = pointer<T>(dx);
    two_stage(rows, 2 * width, accumulate, {{pointer<float>(dweight), 0, width}, {pointer<float>(dbias), width, width}},
              [&](std::int64_t first, std::int64_t count, float* partial) {
                const std::int64_t at = first * width;
                table().loops<T>().norm_backward(gradient + at, from + at, scale, rms ? nullptr : centre + first,
                                                 r + first, residual != nullptr ? residual + at : nullptr, to + at,
                                                 partial, count, width);
              });
  });
  return dx;
}

at::Tensor dropout_add(const OptionalTensor& base_in, const at::Tensor& branch_in, double p, const DropoutKey& key,
                       const OptionalTensor& bias) {
  const at::Tensor branch = branch_in.contiguous();
  const OptionalTensor base = base_in ? OptionalTensor(base_in->contiguous()) : std::nullopt;
  at::Tensor out = at::empty_like(branch);
  const std::int64_t n = branch.numel(), width = branch.size(-1);
  const auto threshold = static_cast<std::uint32_t>(std::lround(p * 65536));
  const DropoutMask mask{threshold, random_name(key.seed, key.site, key.step, key.micro_batch)};
  with_type(branch, [&]<class T>(T*) {
    const T *under = pointer<T>(base), *from = pointer<T>(branch), *shift = pointer<T>(bias);
    T* to = pointer<T>(out);
    at::parallel_for(0, (n + 127) / 128, 64, [&](std::int64_t begin, std::int64_t end) {
      table().loops<T>().dropout_add(under, from, shift, to, begin * 128, std::min(n, end * 128), width, mask);
    });
  });
  return out;
}

void add_noise_(const at::Tensor& x, const at::Tensor& scales, const DropoutKey& key) {
  const std::int64_t n = x.numel(), width = x.size(-1);
  ARGOSY_CHECK(x.is_contiguous() && scales.is_contiguous() && scales.numel() * width == n, "{} scales for {} rows",
               scales.numel(), n / width);
  const RandomName name = random_name(key.seed, key.site, key.step, key.micro_batch);
  with_type(x, [&]<class T>(T*) {
    T* to = pointer<T>(x);
    const float* scale = pointer<float>(scales);
    at::parallel_for(0, (n + 127) / 128, 64, [&](std::int64_t begin, std::int64_t end) {
      table().loops<T>().add_noise(to, scale, begin * 128, std::min(n, end * 128), width, name);
    });
  });
}

void activation(const at::Tensor& u, const OptionalTensor& bias, const at::Tensor& y, spec::Activation kind) {
  ARGOSY_CHECK(u.is_contiguous() && y.is_contiguous(), "activation works on whole rows");
  const std::int64_t rows = u.size(0), width = u.size(1), out_width = y.size(1);
  with_type(u, [&]<class T>(T*) {
    T *in = pointer<T>(u), *out = pointer<T>(y);
    const T* shift = pointer<T>(bias);
    at::parallel_for(0, rows, grain(width), [&](std::int64_t begin, std::int64_t end) {
      table().loops<T>().activation(in + begin * width, shift, out + begin * out_width, end - begin, width,
                                    static_cast<std::int64_t>(kind));
    });
  });
}

at::Tensor activation_backward(const at::Tensor& dy_in, const at::Tensor& saved, spec::Activation kind,
                               const OptionalTensor& dbias, bool accumulate, const OptionalTensor& activated) {
  const at::Tensor dy = dy_in.contiguous();
  ARGOSY_CHECK(
      !activated || (activated->is_contiguous() && activated->sizes() == dy.sizes() && kind != spec::Activation::relu),
      "recomputing the activation needs whole rows; relu has saved it");
  ARGOSY_CHECK(saved.is_contiguous(), "activation works on whole rows");
  const std::int64_t rows = saved.size(0), width = saved.size(1), out_width = dy.size(1);
  at::Tensor du = at::empty_like(saved);
  with_type(dy, [&]<class T>(T*) {
    const T *gradient = pointer<T>(dy), *kept = pointer<T>(saved);
    T *out = pointer<T>(du), *again = pointer<T>(activated);
    two_stage(rows, width, accumulate, {{pointer<float>(dbias), 0, width}},
              [&](std::int64_t first, std::int64_t count, float* partial) {
                table().loops<T>().activation_backward(
                    gradient + first * out_width, kept + first * width, out + first * width,
                    again != nullptr ? again + first * out_width : nullptr, dbias ? partial : nullptr, count, width,
                    static_cast<std::int64_t>(kind));
              });
  });
  return du;
}

void column_sum(const at::Tensor& x_in, const at::Tensor& out, bool accumulate) {
  const at::Tensor x = x_in.contiguous();
  const std::int64_t width = x.size(1);
  with_type(x, [&]<class T>(T*) {
    const T* from = pointer<T>(x);
    two_stage(x.size(0), width, accumulate, {{pointer<float>(out), 0, width}},
              [&](std::int64_t first, std::int64_t count, float* partial) {
                table().loops<T>().column_sum(from + first * width, partial, count, width);
              });
  });
}

at::Tensor embedding(const at::Tensor& ids_in, const at::Tensor& matrix, double scale,
                     const OptionalTensor& position_table, const OptionalTensor& positions_in, std::int64_t offset) {
  const at::Tensor ids = ids_in.contiguous();
  const OptionalTensor positions = positions_in ? OptionalTensor(positions_in->contiguous()) : std::nullopt;
  const std::int64_t length = ids.size(1), width = matrix.size(1), vocabulary = matrix.size(0);
  at::Tensor x = at::empty({ids.size(0), length, width}, matrix.options());
  with_type(matrix, [&]<class T>(T*) {
    const std::int64_t *id = pointer<std::int64_t>(ids), *position = pointer<std::int64_t>(positions);
    const T* from = pointer<T>(matrix);
    const float* waves = pointer<float>(position_table);
    T* to = pointer<T>(x);
    at::parallel_for(0, ids.numel(), grain(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        ARGOSY_CHECK(0 <= id[i] && id[i] < vocabulary, "id {} of {}", id[i], vocabulary);
        const std::int64_t place = position != nullptr ? position[i] : offset + i % length;
        table().loops<T>().embed(from + id[i] * width, waves != nullptr ? waves + place * width : nullptr,
                                 to + i * width, static_cast<float>(scale), width);
      }
    });
  });
  return x;
}

void embedding_backward(const at::Tensor& dx_in, const at::Tensor& ids_in, double scale, const at::Tensor& dtable,
                        bool accumulate, std::int64_t skip_id) {
  const at::Tensor dx = dx_in.contiguous(), ids = ids_in.contiguous();
  const std::int64_t n = ids.numel(), width = dtable.size(1);
  if (!accumulate) dtable.zero_();
  const std::int64_t* id = pointer<std::int64_t>(ids);
  std::vector<std::int64_t> order;  // occurrences, sorted by id; those of one id in their order
  for (std::int64_t i = 0; i < n; ++i) {
    if (id[i] != skip_id) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [id](std::int64_t a, std::int64_t b) { return id[a] < id[b]; });
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || id[order[i]] != id[order[i - 1]]) starts.push_back(i);
  }
  starts.push_back(order.size());
  with_type(dx, [&]<class T>(T*) {
    const T* from = pointer<T>(dx);
    float* sum = pointer<float>(dtable);
    at::parallel_for(0, static_cast<std::int64_t>(starts.size()) - 1, grain(width),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::size_t i = starts[static_cast<std::size_t>(begin)];
                            i < starts[static_cast<std::size_t>(end)]; ++i) {
                         table().loops<T>().add_scaled(from + order[i] * width, sum + id[order[i]] * width,
                                                       static_cast<float>(scale), width);
                       }
                     });
  });
}

namespace {

AdamwTerms adamw_terms(float coefficient, const AdamwOptions& options) {
  const auto& [lr, beta1, beta2, epsilon, weight_decay, step] = options;
  const auto t = static_cast<double>(step);
  return {.coefficient = coefficient,
          .lr = lr,
          .beta1 = beta1,
          .beta2 = beta2,
          .epsilon = epsilon,
          .weight_decay = weight_decay,
          .correction1 = 1 - std::pow(beta1, t),
          .correction2 = 1 - std::pow(beta2, t)};
}

constexpr std::int64_t update_grain = 16384;

}  // namespace

void adamw_(const at::Tensor& master, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
            const OptionalTensor& weights, const at::Tensor& coefficient, const AdamwOptions& options) {
  const float clip = *pointer<float>(coefficient);
  if (clip < 0) return;
  for (const at::Tensor& tensor : {master, m, v, gradient})
    ARGOSY_CHECK(tensor.is_contiguous(), "adamw_ works on flat slices");
  const AdamwTerms terms = adamw_terms(clip, options);
  float *value = pointer<float>(master), *first = pointer<float>(m), *second = pointer<float>(v);
  const float* slope = pointer<float>(gradient);
  Bf16* rounded = pointer<Bf16>(weights);
  at::parallel_for(0, master.numel(), update_grain, [&](std::int64_t begin, std::int64_t end) {
    table().adamw(value + begin, first + begin, second + begin, slope + begin,
                  rounded != nullptr ? rounded + begin : nullptr, end - begin, terms);
  });
}

void adamw_stochastic_(const at::Tensor& weights, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding) {
  const float clip = *pointer<float>(coefficient);
  if (clip < 0) return;
  for (const at::Tensor& tensor : {weights, m, v, gradient})
    ARGOSY_CHECK(tensor.is_contiguous(), "adamw_stochastic_ works on flat slices");
  ARGOSY_CHECK(rounding.begin % 128 == 0, "an update from element {} of a parameter", rounding.begin);
  const AdamwTerms terms = adamw_terms(clip, options);
  const RandomName name = random_name(rounding.seed, rounding.parameter, options.step, rounding_domain);
  Bf16* value = pointer<Bf16>(weights);
  float *first = pointer<float>(m), *second = pointer<float>(v);
  const float* slope = pointer<float>(gradient);
  const std::int64_t n = weights.numel();
  at::parallel_for(0, (n + 127) / 128, update_grain / 128, [&](std::int64_t from, std::int64_t to) {
    const std::int64_t at = from * 128, count = std::min(n, to * 128) - at;
    table().adamw_stochastic(value + at, first + at, second + at, slope + at, rounding.begin + at, count, terms, name);
  });
}

void ema_(const at::Tensor& mean, const at::Tensor& values, const at::Tensor& coefficient, double decay) {
  if (*pointer<float>(coefficient) < 0) return;
  ARGOSY_CHECK(mean.is_contiguous() && values.is_contiguous(), "ema_ works on flat slices");
  float* const to = pointer<float>(mean);
  const float* const from = pointer<float>(values);
  const auto share = static_cast<float>(1 - decay);
  const std::int64_t n = mean.numel();
  at::parallel_for(0, (n + 127) / 128, update_grain / 128, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * 128;
    table().ema(to + at, from + at, std::min(n, end * 128) - at, share);
  });
}

at::Tensor sum_of_squares(const at::Tensor& x) {
  ARGOSY_CHECK(x.is_contiguous(), "sum_of_squares works on a flat slice");
  constexpr std::int64_t part = 1 << 16;  // summed by one thread, then in order
  const std::int64_t n = x.numel(), parts = (n + part - 1) / part;
  const float* const from = pointer<float>(x);
  std::vector<double> sums(static_cast<std::size_t>(parts));
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      sums[static_cast<std::size_t>(i)] = table().sum_of_squares(from + i * part, std::min(part, n - i * part));
  });
  at::Tensor sum = at::empty({1}, at::kDouble);
  *pointer<double>(sum) = std::accumulate(sums.begin(), sums.end(), 0.0);
  return sum;
}

}  // namespace argosy::kernels::cpu
