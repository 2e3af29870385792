#include "model/inference.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/error.hpp"
#include "model/impl.hpp"

namespace argosy::model {

using Places = std::vector<std::int64_t>;

namespace {

/// Places for the keys and values of positions, in all layers.
struct Pool {
  std::vector<at::Tensor> layers;  // [places, 2K, D]
  Places free;

  /// Gives `count` places. in_use: calls its argument with each place that is still needed.
  template <class InUse>
  Places take(std::size_t count, InUse&& in_use) {
    if (free.size() < count) {
      const auto had = static_cast<std::size_t>(layers.front().size(0));
      std::vector<bool> used(had);
      in_use([&](std::int64_t place) { used[static_cast<std::size_t>(place)] = true; });
      // Room for some time, so that this is not done at each step.
      const auto needed = static_cast<std::size_t>(std::count(used.begin(), used.end(), true)) + count;
      if (needed + needed / 2 > had) used.resize(std::max<std::size_t>(1024, 2 * needed));
      free.clear();
      for (std::size_t place = used.size(); place-- > 0;) {
        if (!used[place]) free.push_back(static_cast<std::int64_t>(place));
      }
      for (at::Tensor& layer : layers) {
        if (used.size() == had) break;
        const at::Tensor grown =
            at::empty({static_cast<std::int64_t>(used.size()), layer.size(1), layer.size(2)}, layer.options());
        grown.narrow(0, 0, layer.size(0)).copy_(layer);
        layer = grown;
      }
    }
    const Places taken(free.end() - static_cast<std::ptrdiff_t>(count), free.end());
    free.resize(free.size() - count);
    return taken;
  }
};

}  // namespace

struct Cache::Impl {
  struct Row {
    Places self;
    std::shared_ptr<const Places> source;
  };
  Pool self, source;
  std::vector<Row> rows;
  at::Tensor source_places, source_lengths;  // of all rows; undefined: to be made again

  Places take_self(std::size_t count) {
    return self.take(count, [&](auto&& mark) {
      for (const Row& row : rows) std::for_each(row.self.begin(), row.self.end(), mark);
    });
  }
  Places take_source(std::size_t count) {
    return source.take(count, [&](auto&& mark) {
      for (const Row& row : rows) std::for_each(row.source->begin(), row.source->end(), mark);
    });
  }

  /// Places and lengths as kernels::CachedKeys has them. places_of: of a row.
  template <class PlacesOf>
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> table(const at::Device& device, PlacesOf&& places_of) const {
    std::size_t most = 0;
    for (const Row& row : rows) most = std::max(most, places_of(row).size());
    const auto count = static_cast<std::int64_t>(rows.size()), width = static_cast<std::int64_t>(most);
    const at::Tensor places = at::empty({count, width}, at::kLong), lengths = at::empty({count}, at::kLong);
    std::int64_t *place = places.mutable_data_ptr<std::int64_t>(), *length = lengths.mutable_data_ptr<std::int64_t>();
    for (const Row& row : rows) {
      const Places& of_row = places_of(row);
      std::fill(std::copy(of_row.begin(), of_row.end(), place), place + width, 0);
      place += width;
      *length++ = static_cast<std::int64_t>(of_row.size());
    }
    return {places.to(device), lengths.to(device)};
  }
};

Cache::Cache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::~Cache() = default;
Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
std::int64_t Cache::rows() const noexcept { return std::ssize(impl_->rows); }

void Cache::select(std::span<const std::int64_t> rows) {
  std::vector<Impl::Row> kept;
  kept.reserve(rows.size());
  for (const std::int64_t row : rows) kept.push_back(impl_->rows[static_cast<std::size_t>(row)]);
  impl_->rows = std::move(kept);
  impl_->source_places.reset();
}

Inference::Inference(Model& model, kernels::PackedType type) : model_(model) {
  const at::InferenceMode inference;
  for (std::vector<Block>* blocks : {&model.impl().encoder, &model.impl().decoder}) {
    for (Block& block : *blocks) block.pack(type);
  }
  head_ = kernels::pack_matrix(model.impl().heads.front().weight->weight.t(), type);
}

Inference::~Inference() {
  for (std::vector<Block>* blocks : {&model_.impl().encoder, &model_.impl().decoder}) {
    for (Block& block : *blocks) block.unpack();
  }
}

const spec::Architecture& Inference::architecture() const noexcept { return model_.architecture(); }

c10::Device Inference::device() const { return model_.impl().targets.front().table->weight.device(); }

Cache Inference::start() const {
  const at::InferenceMode inference;
  const Model::Impl& model = model_.impl();
  auto impl = std::make_unique<Cache::Impl>();
  const at::Tensor nothing =
      at::empty({0, 2 * model.shape.kv_heads, model.shape.head_size}, model.targets.front().table->weight.options());
  impl->self.layers.assign(model.decoder.size(), nothing);
  if (!model.sources.empty()) impl->source.layers.assign(model.decoder.size(), nothing);
  return Cache(std::move(impl));
}

void Inference::add(Cache& cache, const at::Tensor& ids, const at::Tensor& lengths) {
  const at::InferenceMode inference;
  Model::Impl& model = model_.impl();
  Cache::Impl& impl = cache.impl();
  const bool has_source = !model.sources.empty();
  const std::int64_t count = ids.size(0), width = ids.size(1);
  // Which positions of the padded rows count, and where their keys and values go.
  at::Tensor on_host = lengths.cpu().contiguous(), prompts;
  if (model.shape.prefix_lm) {
    const at::Tensor ends = on_host.unsqueeze(1).expand({count, width});
    prompts = ends.masked_fill(at::arange(width, at::kLong).ge(ends), 0).to(ids.device());
    on_host = (on_host - 1).clamp_min(0);
  }
  Places counted;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t t = 0; t < on_host.const_data_ptr<std::int64_t>()[row]; ++t) counted.push_back(row * width + t);
  }
  const Places places = has_source ? impl.take_source(counted.size()) : impl.take_self(counted.size());
  auto next = places.begin();
  for (std::int64_t row = 0; row < count; ++row) {
    const Places own(next, next + on_host.const_data_ptr<std::int64_t>()[row]);
    next += std::ssize(own);
    impl.rows.push_back(has_source ? Cache::Impl::Row{{}, std::make_shared<const Places>(own)}
                                   : Cache::Impl::Row{own, nullptr});
  }
  impl.source_places.reset();
  if (counted.empty()) return;
  const at::Tensor from = at::tensor(counted, at::kLong).to(ids.device()),
                   to = at::tensor(places, at::kLong).to(ids.device());
  const auto store = [&](at::Tensor& layer, const at::Tensor& keys_values) {
    layer.index_copy_(0, to, keys_values.index_select(0, from));
  };
  if (!has_source) {
    at::Tensor x = model.embed(model.targets.front(), ids, {}, 0);
    for (std::size_t layer = 0; layer < model.decoder.size(); ++layer) {
      at::Tensor keys_values;
      std::tie(x, keys_values) = model.decoder[layer].read(x, prompts);
      store(impl.self.layers[layer], keys_values);
    }
    return;
  }
  Pass pass;
  Inputs inputs;
  inputs.source = ids;
  inputs.source_lengths = lengths;
  State state = model.embed_visit(model.sources.front(), true, 0, {}, inputs, pass);
  for (const Block& block : model.encoder) state.x = block.forward(state.x, {}, inputs, pass);
  at::Tensor memory = state.x;
  if (model.encoder_norm)
    memory = model.encoder_norm->forward(memory.reshape({-1, memory.size(2)})).view(memory.sizes());
  for (std::size_t layer = 0; layer < model.decoder.size(); ++layer)
    store(impl.source.layers[layer], model.decoder[layer].cross_keys_values(memory));
}

at::Tensor Inference::step(Cache& cache, const at::Tensor& ids) {
  const at::InferenceMode inference;
  Model::Impl& model = model_.impl();
  Cache::Impl& impl = cache.impl();
  const bool has_source = !model.sources.empty();
  ARGOSY_CHECK(ids.size(0) == cache.rows(), "{} rows of ids, {} in the cache", ids.size(0), cache.rows());
  const Places places = impl.take_self(impl.rows.size());
  for (std::size_t row = 0; row < impl.rows.size(); ++row) impl.rows[row].self.push_back(places[row]);
  const auto [self, lengths] =
      impl.table(ids.device(), [](const Cache::Impl::Row& row) -> const Places& { return row.self; });
  if (has_source && !impl.source_places.defined()) {
    std::tie(impl.source_places, impl.source_lengths) =
        impl.table(ids.device(), [](const Cache::Impl::Row& row) -> const Places& { return *row.source; });
  }
  const at::Tensor positions = (lengths - 1).unsqueeze(1);
  const std::int64_t most = self.size(1);
  at::Tensor x =
      model.embed(model.targets.front(), ids.unsqueeze(1), positions, std::max<std::int64_t>(0, most - 1)).squeeze(1);
  const kernels::OptionalTensor bias =
      model.decoder.empty() || most == 0 ? std::nullopt : model.decoder.front().position_bias(1, most);
  for (std::size_t layer = 0; layer < model.decoder.size(); ++layer) {
    std::optional<kernels::CachedKeys> source;
    if (has_source) source = {impl.source.layers[layer], impl.source_places, impl.source_lengths};
    x = model.decoder[layer].step(x, positions, {impl.self.layers[layer], self, lengths}, source, bias);
  }
  if (model.decoder_norm) x = model.decoder_norm->forward(x);
  return logits(x);
}

at::Tensor Inference::read_targets(const Inputs& inputs) {
  const at::InferenceMode inference;
  Model::Impl& model = model_.impl();
  Pass pass;
  State state;
  for (const Visit& visit : model.visits) {
    if (visit.kind != spec::VisitKind::head) state = visit.forward(state, inputs, pass);
  }
  if (!model.decoder_norm) return state.x;
  return model.decoder_norm->forward(state.x.reshape({-1, model.shape.width})).view(state.x.sizes());
}

at::Tensor Inference::cross_attention(const Inputs& inputs, std::int64_t layer) {
  const at::InferenceMode inference;
  Model::Impl& model = model_.impl();
  Pass pass;
  State state;
  for (const Visit& visit : model.visits) {
    if (visit.kind == spec::VisitKind::decoder_block && visit.layer == layer)
      return model.decoder[static_cast<std::size_t>(layer)].cross_weights(state.x, state.memory, inputs);
    state = visit.forward(state, inputs, pass);
  }
  ARGOSY_CHECK(false, "decoder layer {} of {}", layer, model.decoder.size());
  return {};
}

at::Tensor Inference::logits(const at::Tensor& outputs) {
  const at::InferenceMode inference;
  const Model::Impl& model = model_.impl();
  const double scale = model.shape.output_scale();
  const at::Tensor x = scale != 1 ? outputs * scale : outputs;
  const Parameter* const bias = model.heads.front().bias;
  const at::Tensor logits = at::empty({x.size(0), head_.columns}, x.options().dtype(at::kFloat));
  kernels::gemm(x, head_, logits, {.bias = bias != nullptr ? optional(bias->weight) : std::nullopt});
  const spec::Vocabulary& vocabulary = model.shape.vocabulary;
  logits.narrow(1, vocabulary.pieces, vocabulary.rows - vocabulary.pieces).fill_(-1e4);
  return logits;
}

}  // namespace argosy::model
