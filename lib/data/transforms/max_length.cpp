#include "data/transforms/max_length.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const MaxLength&) {
  static constexpr config::KeyText texts[] = {
      {"source", "max_length: most pieces of a source line, EOS not counted"},
      {"target", "max_length: most pieces of a target line, EOS not counted"},
  };
  return texts;
}

void validate(const MaxLength& config, config::Problems& problems) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // of a row, which shards count in 32 bits
  for (const auto& [pointer, value] : {std::pair{"/source", config.source}, {"/target", config.target}})
    problems.require(value >= 1 && value <= most, pointer, fmt::format("1 to {}", most), fmt::format("{}", value));
}

namespace {

class LengthFilter final : public Transform {
 public:
  explicit LengthFilter(const MaxLength& most) : most_(most) {}

  [[nodiscard]] std::string_view type() const override { return MaxLength::type; }
  [[nodiscard]] std::string recipe() const override {
    return fmt::format("max_length {} {}", most_.source, most_.target);
  }
  [[nodiscard]] Stage stage() const override { return MaxLength::stage; }
  [[nodiscard]] bool is_filter() const override { return true; }
  /// What grows by chance afterwards is cut back to this: such an example is made plainly.
  [[nodiscard]] Lengths longest(Lengths lengths, const Example&) const override {
    const auto at_most = [](std::uint32_t length, std::int64_t most) {
      return narrow<std::uint32_t>(std::min<std::int64_t>(length, most));
    };
    return {.source = at_most(lengths.source, most_.source), .target = at_most(lengths.target, most_.target)};
  }
  [[nodiscard]] bool apply(Example& example, RandomStream*) const override {
    return std::ssize(example.source) <= most_.source && std::ssize(example.target) <= most_.target;
  }
  [[nodiscard]] std::string fault_of(const Example& example) const override {
    return fmt::format("{} and {} pieces, at most {} and {}", example.source.size(), example.target.size(),
                       most_.source, most_.target);
  }

 private:
  MaxLength most_;
};

}  // namespace

std::unique_ptr<const Transform> MaxLength::make(const Materials&) const {
  return std::make_unique<LengthFilter>(*this);
}

}  // namespace argosy::data
