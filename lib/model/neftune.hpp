#pragma once

#include <ATen/core/Tensor.h>

/// How much noise NEFTune (arXiv:2310.05914) adds to embedded ids in training. For .cpp files of this module.
namespace argosy::model {

/// fp32 [rows, T]: alpha/√(L·width), where L is the number of positions of the example that a position belongs to; 0
/// behind the end of a row. x: the embedded ids [rows, T, width]; lengths: int64 [rows], where each row is one example;
/// segments: int64 [rows, T], the number of the example in its row, -1 behind the end; undefined unless rows are
/// packed. Each part of an example that is cut over rows counts by itself.
[[nodiscard]] at::Tensor noise_scales(double alpha, const at::Tensor& x, const at::Tensor& lengths,
                                      const at::Tensor& segments);

}  // namespace argosy::model
