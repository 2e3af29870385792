#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// Biases of attention scores by the distance of a key from its query, as AttentionMask::bias takes them: element c of
/// a head is for the distance c - (keys - 1), key minus query, where the last query is at the last key's position.
namespace argosy::kernels {

/// -slope·|distance|: fp32 [heads, keys + queries - 1] on `device` (ALiBi, arXiv:2108.12409).
[[nodiscard]] at::Tensor alibi_bias(std::int64_t heads, std::int64_t queries, std::int64_t keys, c10::Device device);

/// The rows of `table` [spec::relative_buckets, heads] for the buckets of the distances: fp32 [heads, keys + queries -
/// 1] (T5, arXiv:1910.10683).
[[nodiscard]] at::Tensor relative_bias(const at::Tensor& table, std::int64_t queries, std::int64_t keys,
                                       bool bidirectional);

/// The gradient of the table from that of the bias. dtable: fp32; overwritten, or added to with `accumulate`.
void relative_bias_backward(const at::Tensor& dbias, std::int64_t keys, bool bidirectional, const at::Tensor& dtable,
                            bool accumulate);

}  // namespace argosy::kernels
