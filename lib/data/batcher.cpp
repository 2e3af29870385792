#include "data/batcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace argosy::data {
namespace {

std::size_t cells(std::int64_t rows, std::int64_t width) { return static_cast<std::size_t>(rows * width); }

std::int64_t checked(std::int32_t id, const spec::Vocabulary& vocabulary) {
  if (id < 0 || vocabulary.is_dead(id))
    throw_error(Fault::corrupt, "data.shards", fmt::format("token ids below {}", vocabulary.pieces),
                fmt::format("{}", id), "remove the folder and run preprocess");
  return id;
}

/// Keeps the first `to` columns of each row.
void cut_columns(std::vector<std::int64_t>& values, std::int64_t rows, std::int64_t from, std::int64_t to) {
  for (std::int64_t r = 1; r < rows; ++r) {
    std::copy_n(values.begin() + r * from, to, values.begin() + r * to);
  }
  values.resize(cells(rows, to));
}

}  // namespace

Batch batch_of_pairs(std::span<const PairIds> examples, const spec::Vocabulary& vocabulary, std::int64_t source_width,
                     std::int64_t target_width) {
  Batch batch;
  if (examples.empty()) return batch;
  batch.rows = static_cast<std::int64_t>(examples.size());
  for (const PairIds& example : examples) {
    source_width = std::max(source_width, static_cast<std::int64_t>(example.source.size()));
    target_width = std::max(target_width, static_cast<std::int64_t>(example.target.size()));
  }
  batch.source_width = source_width;
  batch.target_width = target_width;
  batch.padded_tokens = batch.rows * (source_width + target_width);
  batch.source.assign(cells(batch.rows, source_width), vocabulary.filler());
  batch.target_input.assign(cells(batch.rows, target_width), vocabulary.filler());
  batch.target_labels.assign(cells(batch.rows, target_width), no_label);
  const auto set_positions = [&](std::vector<std::int64_t>& positions, std::int64_t first, std::int64_t count,
                                 std::int64_t row, std::int64_t width) {
    positions.resize(cells(batch.rows, width));  // 0 behind the end
    const auto begin = positions.begin() + row * width;
    std::iota(begin, begin + count, first);
  };
  for (std::size_t r = 0; r < examples.size(); ++r) {
    const PairIds& example = examples[r];
    const auto row = static_cast<std::int64_t>(r);
    std::transform(example.source.begin(), example.source.end(), batch.source.begin() + row * source_width,
                   [&](std::int32_t id) { return checked(id, vocabulary); });
    std::int64_t* const labels = batch.target_labels.data() + row * target_width;
    std::transform(example.target.begin(), example.target.end(), labels,
                   [&](std::int32_t id) { return checked(id, vocabulary); });
    batch.tgt_tokens += std::ssize(example.target);
    if (!example.target.empty()) {
      std::int64_t* const input = batch.target_input.data() + row * target_width;
      input[0] = vocabulary.start;
      std::copy_n(labels, example.target.size() - 1, input + 1);
    }
    if (example.loss != nullptr && !example.loss->empty()) {
      for (std::size_t i = 0; i < example.target.size(); ++i) {
        if (example.loss->at(i)) continue;
        labels[i] = no_label;
        --batch.tgt_tokens;
      }
    }
    if (example.shift) {
      set_positions(batch.source_positions, example.shift->source, std::ssize(example.source), row, source_width);
      set_positions(batch.positions, example.shift->target, std::ssize(example.target), row, target_width);
    }
    if (example.corpus) {
      batch.corpora.resize(cells(batch.rows, target_width));
      std::fill_n(batch.corpora.begin() + row * target_width, std::ssize(example.target), *example.corpus);
    }
    batch.source_lengths.push_back(static_cast<std::int64_t>(example.source.size()));
    batch.target_lengths.push_back(static_cast<std::int64_t>(example.target.size()));
    batch.examples.push_back(example.id);
    batch.src_tokens += batch.source_lengths.back();
  }
  return batch;
}

LmBatcher::LmBatcher(const spec::Vocabulary& vocabulary, std::int64_t rows, std::int64_t width)
    : vocabulary_(vocabulary) {
  batch_.rows = rows;
  batch_.target_width = width;
  batch_.target_input.assign(cells(rows, width), vocabulary.filler());
  batch_.target_labels.assign(cells(rows, width), no_label);
  batch_.segments.assign(cells(rows, width), -1);
  batch_.positions.assign(cells(rows, width), 0);
  batch_.prompts.assign(cells(rows, width), 0);
  batch_.source_lengths.assign(static_cast<std::size_t>(rows), 0);
  batch_.target_lengths.assign(static_cast<std::size_t>(rows), 0);
}

void LmBatcher::begin_row() {
  ++row_;
  ARGOSY_CHECK(row_ < batch_.rows, "row {} of {}", row_, batch_.rows);
  at_ = 0;
  segment_ = 0;
}

void LmBatcher::add(const DocumentPart& part, std::int64_t from, std::int64_t count) {
  ARGOSY_CHECK(
      row_ >= 0 && from >= 0 && count > 0 && from + count <= part.size + 1 && at_ + count <= batch_.target_width,
      "{} + {} of {}", from, count, part.size);
  const auto id_at = [&](std::int64_t i) {
    return i == 0 ? vocabulary_.start : checked(part.ids.at(static_cast<std::size_t>(i - 1 - part.begin)), vocabulary_);
  };
  const auto begin = static_cast<std::size_t>(row_ * batch_.target_width + at_);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t cell = begin + static_cast<std::size_t>(i);
    batch_.target_input[cell] = id_at(from + i);
    batch_.segments[cell] = segment_;
    batch_.positions[cell] = part.shift + i;
    const bool has_label = from + i < part.size;
    if (has_label && (part.loss.empty() || part.loss.at(static_cast<std::size_t>(from + i - part.begin)))) {
      batch_.target_labels[cell] = id_at(from + i + 1);
      ++batch_.tgt_tokens;
    }
  }
  if (part.corpus) {
    batch_.corpora.resize(batch_.target_input.size());
    std::fill_n(batch_.corpora.begin() + static_cast<std::ptrdiff_t>(begin), count, *part.corpus);
  }
  const auto first = batch_.target_labels.begin() + static_cast<std::ptrdiff_t>(begin), end = first + count;
  const std::int64_t prompt =
      std::min(count, std::find_if(first, end, [](std::int64_t label) { return label != no_label; }) - first + 1);
  std::fill_n(batch_.prompts.begin() + static_cast<std::ptrdiff_t>(begin), prompt, at_ + prompt);
  at_ += count;
  ++segment_;
  batch_.target_lengths[static_cast<std::size_t>(row_)] = at_;
}

Batch LmBatcher::take(std::int64_t multiple) {
  const std::int64_t longest =
      batch_.rows == 0 ? 0 : *std::max_element(batch_.target_lengths.begin(), batch_.target_lengths.end());
  const std::int64_t widest = std::min(batch_.target_width, (longest + multiple - 1) / multiple * multiple);
  for (auto* values : {&batch_.target_input, &batch_.target_labels, &batch_.segments, &batch_.positions,
                       &batch_.prompts, &batch_.corpora}) {
    if (!values->empty()) cut_columns(*values, batch_.rows, batch_.target_width, widest);
  }
  batch_.target_width = widest;
  batch_.padded_tokens = batch_.rows * widest;
  return std::move(batch_);
}

std::vector<LmRow> plan_packed_rows(std::span<const std::int64_t> positions, std::int64_t width, DocumentCut cut) {
  std::vector<LmRow> rows;
  std::int64_t room = 0;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    const std::int64_t size = positions[d];
    if (cut == DocumentCut::whole && size > room) room = 0;
    for (std::int64_t at = 0; at < size;) {
      if (room == 0) {
        rows.push_back({.first = d, .offset = at});
        room = width;
      }
      const std::int64_t count = std::min(room, size - at);
      at += count;
      room -= count;
      rows.back().positions += count;
      rows.back().tgt_tokens += count - (at == size ? 1 : 0);
    }
  }
  return rows;
}

std::vector<LmRow> plan_single_rows(std::span<const std::int64_t> positions, std::int64_t width) {
  std::vector<LmRow> rows;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    for (std::int64_t at = 0; at < positions[d] - 1; at += width) {
      const std::int64_t count = std::min(width, positions[d] - 1 - at);
      rows.push_back({.first = d, .offset = at, .positions = count, .tgt_tokens = count});
    }
  }
  return rows;
}

void add_row(LmBatcher& batcher, const LmRow& row, const DocumentReader& read) {
  batcher.begin_row();
  std::int64_t offset = row.offset;
  std::uint64_t place = row.first;
  for (std::int64_t left = row.positions; left > 0; ++place) {
    const DocumentPart part = read(place, std::max<std::int64_t>(0, offset - 1), offset + left);
    const std::int64_t count = std::min(left, part.size + 1 - offset);
    batcher.add(part, offset, count);
    left -= count;
    offset = 0;
  }
}

}  // namespace argosy::data
