#include "soup/kitchen.hpp"

#include <algorithm>
#include <map>

#include "checkpoint/shard_file.hpp"
#include "core/error.hpp"

namespace argosy::soup {

Kitchen::Kitchen(const Ingredients& ingredients, std::span<const partition::FlatSpace> spaces)
    : ingredients_(ingredients), spaces_(spaces), sum_(slice_elements), input_(slice_elements) {
  for (const checkpoint::Reader* const reader : ingredients.readers) {
    streams_.push_back(reader->stream());
    std::map<std::string, std::size_t> ids;
    for (std::size_t id = 0; id < reader->parameters().size(); ++id) ids.emplace(reader->parameters()[id].name, id);
    auto& of_unit = ids_.emplace_back();
    for (const partition::FlatSpace& space : spaces) {
      auto& of_param = of_unit.emplace_back();
      for (const partition::ParamSpec& param : space.params()) of_param.push_back(ids.at(param.name));
    }
  }
}

void Kitchen::average(std::size_t unit, std::int64_t begin, std::span<float> out) {
  const partition::FlatSpace& space = spaces_[unit];
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  std::size_t first = 0;
  while (first < space.params().size() && space.offset(first) + space.params()[first].numel() <= begin) ++first;
  std::fill_n(sum_.begin(), out.size(), 0.0);
  for (std::size_t k = 0; k < streams_.size(); ++k) {
    const double weight = ingredients_.mixture.weights[k];
    for (std::size_t p = first; p < space.params().size() && space.offset(p) < end; ++p) {
      const std::int64_t from = std::max(begin, space.offset(p));
      const std::int64_t to = std::min(end, space.offset(p) + space.params()[p].numel());
      const std::span<float> piece = std::span{input_}.first(static_cast<std::size_t>(to - from));
      streams_[k].read(ids_[k][unit][p], from - space.offset(p), piece);
      if (!checkpoint::all_finite(piece)) {
        throw Error{Fault::data,
                    {.wanted = "finite weights",
                     .got = "NaN or Inf in " + space.params()[p].name,
                     .where = ingredients_.readers[k]->directory().string(),
                     .remedy = "leave it out"}};
      }
      double* const sum = sum_.data() + (from - begin);
      for (std::size_t i = 0; i < piece.size(); ++i) sum[i] += weight * static_cast<double>(piece[i]);
    }
  }
  const double divisor = ingredients_.mixture.divisor;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(sum_[i] / divisor);
  if (!checkpoint::all_finite(out)) {
    throw Error{Fault::numeric,
                {.wanted = "a mean that fp32 can hold",
                 .got = "NaN or Inf",
                 .where = first < space.params().size() ? space.params()[first].name : std::string{},
                 .remedy = "give smaller weights, or leave --no-normalize out"}};
  }
}

void Kitchen::finish() {
  for (checkpoint::WeightStream& stream : streams_) stream.finish();
}

std::uint64_t Kitchen::bytes_read() const {
  std::uint64_t sum = 0;
  for (const checkpoint::WeightStream& stream : streams_) sum += stream.bytes_read();
  return sum;
}

}  // namespace argosy::soup
