#include "model/inference.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/error.hpp"
#include "model/impl.hpp"

namespace argosy::model {

struct Cache::Impl {
  std::int64_t rows = 0, length = 0;
  std::vector<at::Tensor> self;   // a layer: [rows, capacity, 2K, D]
  std::vector<at::Tensor> cross;  // a layer: [sources, S, 2K, D]; each source serves rows/sources consecutive rows
  at::Tensor source_lengths;      // [sources]
  std::vector<std::int64_t> source_of;  // row → index into sources

  /// Regroups the sources for a new row → source map: kept once where every source serves equally many consecutive
  /// rows.
  void regroup(const std::vector<std::int64_t>& wanted) {
    std::vector<std::int64_t> sources;  // one a run of equal entries
    std::vector<std::int64_t> runs;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (i == 0 || wanted[i] != wanted[i - 1]) {
        sources.push_back(wanted[i]);
        runs.push_back(0);
      }
      ++runs.back();
    }
    if (std::any_of(runs.begin(), runs.end(), [&](std::int64_t run) { return run != runs.front(); })) sources = wanted;
    const std::int64_t group = sources.empty() ? 1 : static_cast<std::int64_t>(wanted.size() / sources.size());
    bool same = static_cast<std::int64_t>(sources.size()) == source_lengths.size(0);
    for (std::size_t i = 0; same && i < sources.size(); ++i) same = sources[i] == static_cast<std::int64_t>(i);
    if (!same) {
      const at::Tensor index =
          at::empty({static_cast<std::int64_t>(sources.size())}, source_lengths.options().device(at::kCPU));
      std::copy(sources.begin(), sources.end(), index.mutable_data_ptr<std::int64_t>());
      const at::Tensor on_device = index.to(source_lengths.device());
      source_lengths = source_lengths.index_select(0, on_device);
      for (at::Tensor& layer : cross) layer = layer.index_select(0, on_device);
    }
    source_of.resize(wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) source_of[i] = static_cast<std::int64_t>(i) / group;
  }
};

Cache::Cache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::~Cache() = default;
Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
std::int64_t Cache::rows() const noexcept { return impl_->rows; }
std::int64_t Cache::length() const noexcept { return impl_->length; }

void Cache::select(const at::Tensor& index) {
  const at::InferenceMode inference;
  impl_->rows = index.size(0);
  for (at::Tensor& layer : impl_->self) {
    if (!layer.defined()) continue;
    at::Tensor kept = at::empty({index.size(0), layer.size(1), layer.size(2), layer.size(3)}, layer.options());
    kept.narrow(1, 0, impl_->length).copy_(layer.narrow(1, 0, impl_->length).index_select(0, index));
    layer = kept;
  }
  if (impl_->cross.empty()) return;
  const at::Tensor host = index.to(at::kCPU).contiguous();
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(host.size(0)));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = impl_->source_of[static_cast<std::size_t>(host.const_data_ptr<std::int64_t>()[i])];
  }
  impl_->regroup(wanted);
}

Inference::Inference(Model& model) : model_(model) {
  const at::InferenceMode inference;
  for (std::vector<Block>* blocks : {&model.impl().encoder, &model.impl().decoder}) {
    for (Block& block : *blocks) block.pack(true);
  }
  head_ = kernels::pack_matrix(model.impl().head_weight->weight.t());
}

Inference::~Inference() {
  for (std::vector<Block>* blocks : {&model_.impl().encoder, &model_.impl().decoder}) {
    for (Block& block : *blocks) block.pack(false);
  }
}

Cache Inference::start(const at::Tensor& source, const at::Tensor& lengths, std::int64_t copies) {
  const at::InferenceMode inference;
  Model::Impl& model = model_.impl();
  ARGOSY_CHECK(model.source_table != nullptr, "start(source) is for encoder-decoder models");
  Pass pass;
  Inputs inputs;
  inputs.source = source;
  inputs.source_lengths = lengths;
  State state = model.embed_visit(*model.source_table, true, 0, {}, inputs, pass);
  for (const Block& block : model.encoder) state.x = block.forward(state.x, {}, inputs, pass);
  at::Tensor memory = state.x;
  if (model.encoder_norm)
    memory = model.encoder_norm->forward(memory.reshape({-1, memory.size(2)})).view(memory.sizes());
  Cache cache = start(source.size(0) * copies);
  Cache::Impl& impl = cache.impl();
  impl.source_lengths = lengths;
  for (const Block& block : model.decoder) impl.cross.push_back(block.cross_keys_values(memory));
  for (std::int64_t row = 0; row < impl.rows; ++row) impl.source_of.push_back(row / copies);
  return cache;
}

Cache Inference::start(std::int64_t rows) {
  auto impl = std::make_unique<Cache::Impl>();
  impl->rows = rows;
  impl->self.resize(static_cast<std::size_t>(model_.architecture().decoder_layers));
  return Cache(std::move(impl));
}

at::Tensor Inference::step(Cache& cache, const at::Tensor& ids) { return extend(cache, ids.unsqueeze(1)).squeeze(1); }

at::Tensor Inference::extend(Cache& cache, const at::Tensor& ids) {
  const at::InferenceMode inference;
  Model::Impl& model = model_.impl();
  const spec::Architecture& shape = model.shape;
  Cache::Impl& impl = cache.impl();
  ARGOSY_CHECK(ids.size(0) == impl.rows, "{} rows of ids, {} in the cache", ids.size(0), impl.rows);
  const std::int64_t count = ids.size(1), needed = impl.length + count;
  at::Tensor x = model.embed(*model.target_table, shape.decoder_position, ids, {}, impl.length);
  for (std::size_t layer = 0; layer < model.decoder.size(); ++layer) {
    at::Tensor& self = impl.self[layer];
    if (!self.defined() || self.size(1) < needed) {
      const std::int64_t capacity = std::max<std::int64_t>({needed, 2 * impl.length, 16});
      const at::Tensor grown = at::empty({impl.rows, capacity, 2 * shape.kv_heads, shape.head_size}, x.options());
      if (impl.length > 0) grown.narrow(1, 0, impl.length).copy_(self.narrow(1, 0, impl.length));
      self = grown;
    }
    const bool cross = !impl.cross.empty();
    x = model.decoder[layer].extend(x, self, impl.length, cross ? impl.cross[layer] : at::Tensor(),
                                    cross ? kernels::OptionalTensor(impl.source_lengths) : std::nullopt);
  }
  impl.length = needed;
  at::Tensor h = x.reshape({-1, shape.width});
  if (model.decoder_norm) h = model.decoder_norm->forward(h);
  const at::Tensor logits = at::empty({h.size(0), head_.columns}, h.options().dtype(at::kFloat));
  kernels::gemm(h, head_, logits,
                {.bias = model.head_bias != nullptr ? optional(model.head_bias->weight) : std::nullopt});
  const spec::Vocabulary& vocabulary = shape.vocabulary;
  logits.narrow(1, vocabulary.pieces, vocabulary.rows - vocabulary.pieces).fill_(-1e4);
  return logits.view({impl.rows, count, vocabulary.rows});
}

}  // namespace argosy::model
