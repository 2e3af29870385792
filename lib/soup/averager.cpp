#include "soup/averager.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "checkpoint/shard_file.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"

namespace argosy::soup {
namespace {

/// The nearest bf16. Goes through an fp32 rounded to odd, which keeps the bits that decide ties; rounding to the
/// nearest fp32 first would round twice.
std::uint16_t bf16_from_f64(double value) {
  const auto near = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(near);
  bits -= std::abs(static_cast<double>(near)) > std::abs(value) ? 1U : 0U;
  bits |= static_cast<double>(std::bit_cast<float>(bits)) == value ? 0U : 1U;
  return bf16_from_f32(std::bit_cast<float>(bits));
}

ARGOSY_WIDEST void add_scaled(std::span<const float> from, double weight, double* sum) {
  for (std::size_t i = 0; i < from.size(); ++i) sum[i] += weight * static_cast<double>(from[i]);
}
ARGOSY_WIDEST void divide(const double* sum, double divisor, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(sum[i] / divisor);
}
ARGOSY_WIDEST void divide(const double* sum, double divisor, std::span<std::uint16_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_from_f64(sum[i] / divisor);
}

}  // namespace

Averager::Averager(const Mean& mean, std::span<const partition::FlatSpace> spaces,
                   std::span<const spec::StateTensor> tensors, DType dtype, Moments moments)
    : mean_(mean),
      spaces_(spaces),
      dtype_(dtype),
      moments_(moments),
      sum_(slice_elements),
      input_(slice_elements),
      out_(slice_elements * size_of(dtype)) {
  for (const spec::StateTensor& tensor : tensors) {
    std::vector<checkpoint::WeightStream>& streams = streams_.emplace_back();
    const std::size_t read = tensor.name == spec::weights_tensor || moments == Moments::avg ? mean.readers.size()
                             : moments == Moments::first                                    ? 1
                                                                                            : 0;
    for (std::size_t k = 0; k < read; ++k) streams.push_back(mean.readers[k]->stream(tensor.name));
  }
  for (const checkpoint::Reader* const reader : mean.readers) {
    std::map<std::string, std::size_t> ids;
    for (std::size_t id = 0; id < reader->parameters().size(); ++id) ids.emplace(reader->parameters()[id].name, id);
    auto& of_unit = ids_.emplace_back(spaces.size());
    for (std::size_t unit = 0; unit < spaces.size(); ++unit) {
      const std::vector<partition::ParamSpec>& params = spaces[unit].params();
      if (mean.whole != nullptr && !ids.contains(params.front().name)) continue;
      for (const partition::ParamSpec& param : params) of_unit[unit].push_back(ids.at(param.name));
    }
  }
  for (std::size_t unit = 0; unit < spaces.size(); ++unit) {
    double sum = 0;
    bool all = true;
    for (std::size_t k = 0; k < ids_.size(); ++k) {
      all = all && !ids_[k][unit].empty();
      if (!ids_[k][unit].empty()) sum += mean.mixture.weights[k];
    }
    divisors_.push_back(all ? mean.mixture.divisor : sum);
  }
}

void Averager::add(std::size_t k, std::size_t unit, std::size_t tensor, std::int64_t begin, std::int64_t end,
                   double weight) {
  const partition::FlatSpace& space = spaces_[unit];
  if (ids_[k][unit].empty()) return;
  for (std::size_t p = 0; p < space.params().size() && space.offset(p) < end; ++p) {
    const std::int64_t from = std::max(begin, space.offset(p));
    const std::int64_t to = std::min(end, space.offset(p) + space.params()[p].numel());
    if (from >= to) continue;
    const std::span<float> piece = std::span{input_}.first(static_cast<std::size_t>(to - from));
    streams_[tensor][k].read(ids_[k][unit][p], from - space.offset(p), piece);
    if (!checkpoint::all_finite(piece)) {
      throw_error(Fault::data, mean_.readers[k]->directory().string(),
                  tensor == 0 ? "finite weights" : "finite optimizer state", "NaN or Inf in " + space.params()[p].name,
                  "leave this checkpoint out");
    }
    add_scaled(piece, weight, sum_.data() + (from - begin));
  }
}

Bytes Averager::average(std::size_t unit, std::size_t tensor, std::int64_t begin, std::int64_t count) {
  std::fill_n(sum_.begin(), count, 0.0);
  const bool as_it_is = tensor > 0 && moments_ == Moments::first;
  for (std::size_t k = 0; k < streams_[tensor].size(); ++k)
    add(k, unit, tensor, begin, begin + count, as_it_is ? 1.0 : mean_.mixture.weights[k]);
  const double divisor = as_it_is ? 1.0 : divisors_[unit];
  const auto elements = static_cast<std::size_t>(count);
  if (dtype_ == DType::f32) {
    divide(sum_.data(), divisor, std::span{reinterpret_cast<float*>(out_.data()), elements});
  } else {
    divide(sum_.data(), divisor, std::span{reinterpret_cast<std::uint16_t*>(out_.data()), elements});
  }
  const Bytes result = Bytes{out_}.first(elements * size_of(dtype_));
  if (!checkpoint::all_finite(result, dtype_))
    throw_error(Fault::numeric,
                fmt::format("elements {} to {} of {}", begin, begin + count, spaces_[unit].params().front().name),
                fmt::format("a mean within the range of {}", name_of(dtype_)), "NaN or Inf",
                "use smaller weights, or leave --no-normalize out");
  return result;
}

void Averager::finish() {
  for (auto& streams : streams_)
    for (checkpoint::WeightStream& stream : streams) stream.finish();
}

std::uint64_t Averager::bytes_read() const {
  std::uint64_t sum = 0;
  for (const auto& streams : streams_)
    for (const checkpoint::WeightStream& stream : streams) sum += stream.bytes_read();
  return sum;
}

}  // namespace argosy::soup
