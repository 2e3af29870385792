#include "kernels/cuda/flash.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "spec/gpu_attention.hpp"

namespace argosy::kernels::cuda {
namespace {

/// As int32, with the end of the last one.
at::Tensor with_end(const at::Tensor& begins, std::int64_t end) {
  return at::cat({begins, at::full({1}, end, begins.options())}).to(at::kInt);
}

Documents find_documents(const at::Tensor& segments) {
  const at::Tensor begins = at::ones_like(segments, segments.options().dtype(at::kBool));
  const std::int64_t length = segments.size(1);
  begins.narrow(1, 1, length - 1).copy_(segments.narrow(1, 1, length - 1).ne(segments.narrow(1, 0, length - 1)));
  const at::Tensor found = with_end(begins.view({-1}).nonzero().view({-1}), segments.numel()), here = found.cpu();
  const auto* const first = here.const_data_ptr<std::int32_t>();
  return {{first, first + here.numel()}, found};
}

/// Each row with the keys that it sees, and then no query with the others: their gradients are zero.
Sequences seen_and_other(const at::Tensor& key_lengths, std::int64_t queries, std::int64_t keys) {
  const std::int64_t rows = key_lengths.size(0);
  const at::Tensor row = at::arange(rows, key_lengths.options());
  const at::Tensor key_begins = row * keys, query_begins = row * queries;
  return {with_end(at::stack({query_begins, query_begins + queries}, 1).view({-1}), rows * queries),
          with_end(at::stack({key_begins, key_begins + key_lengths}, 1).view({-1}), rows * keys), queries, keys};
}

}  // namespace

bool is_causal(const AttentionMask& mask) { return mask.causal || mask.window > 0; }

std::int64_t longest(const std::vector<std::int32_t>& begins, const DocumentRange& run) {
  std::int64_t most = 0;
  for (std::size_t i = run.first; i < run.last; ++i) most = std::max<std::int64_t>(most, begins[i + 1] - begins[i]);
  return most;
}

bool is_flash(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  const bool causal = is_causal(mask);
  return q.scalar_type() == at::kBFloat16 && spec::is_flash_head(q.size(3)) && q.numel() > 0 && k.numel() > 0 &&
         !mask.bias && !mask.prompts && (!mask.key_lengths || (!causal && !mask.segments)) &&
         (!mask.segments || (causal && q.size(1) == k.size(1)));
}

std::optional<Sequences> sequences_of(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  if (mask.key_lengths) return seen_and_other(*mask.key_lengths, q.size(1), k.size(1));
  if (!mask.segments) return std::nullopt;
  Documents documents = mask.documents ? *mask.documents : find_documents(*mask.segments);
  if (std::ssize(documents.begins) == q.size(0) + 1) return std::nullopt;  // one in each row
  const std::int64_t most = longest(documents.begins, {0, documents.begins.size() - 1});
  return Sequences{documents.on_device, documents.on_device, most, most, std::move(documents.begins)};
}

std::vector<DocumentRange> runs_of(const std::vector<std::int32_t>& begins, std::int64_t heads,
                                   std::int64_t multiprocessors) {
  const std::size_t count = begins.size() - 1;
  const auto work_of = [&](std::size_t document) {  // of a head
    const double length = begins[document + 1] - begins[document];
    return length * length;
  };
  std::vector<std::size_t> by_length(count);
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(), [&](auto a, auto b) { return work_of(a) > work_of(b); });
  double rest = 0, alone = 0;
  for (std::size_t document = 0; document < count; ++document) rest += work_of(document);
  // Of those from that place on: all multiprocessors are at work, and then the longest block.
  const auto together = [&](std::size_t from) {
    const std::int64_t units = heads * static_cast<std::int64_t>(count - from);
    if (units == 0) return 0.0;
    const auto parts = static_cast<double>((multiprocessors + units - 1) / units);
    return rest * static_cast<double>(heads) / static_cast<double>(multiprocessors) + work_of(by_length[from]) / parts;
  };
  constexpr std::size_t most = 16;
  constexpr double of_a_call = 1e5;  // about 30 microseconds for heads of 128
  const auto [added, parts] = spec::flash_parts(1, heads, multiprocessors);
  const auto waves = static_cast<double>(((heads + added) * parts + multiprocessors - 1) / multiprocessors);
  double least = together(0);
  std::size_t best = 0;
  for (std::size_t n = 1; n <= std::min(count, most); ++n) {
    const double work = work_of(by_length[n - 1]);
    rest -= work;
    alone += work * waves / static_cast<double>(parts) + 2 * of_a_call;  // itself, and what it cuts in two
    if (const double time = alone + together(n); time < least) least = time, best = n;
  }
  std::vector<bool> is_alone(count, false);
  for (std::size_t n = 0; n < best; ++n) is_alone[by_length[n]] = true;
  std::vector<DocumentRange> runs;
  for (std::size_t document = 0; document < count; ++document) {
    if (document == 0 || is_alone[document] || is_alone[document - 1]) runs.push_back({document, document});
    ++runs.back().last;
  }
  return runs;
}

}  // namespace argosy::kernels::cuda
