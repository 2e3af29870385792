#include "interchange/formats.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace argosy::interchange {

Format ctranslate2();

std::span<const Format> formats() {
  static const Format table[] = {ctranslate2()};
  return table;
}

const Format& format_named(std::string_view name) {
  const auto found = std::ranges::find(formats(), name, &Format::name);
  if (found != formats().end()) return *found;
  std::vector<std::string_view> names;
  for (const Format& format : formats()) names.push_back(format.name);
  throw Error{Fault::usage,
              {.sentence = fmt::format("--format {} is unknown; the formats are {}", name, fmt::join(names, ", ")),
               .wanted = fmt::format("a known format ({})", fmt::join(names, ", ")),
               .got = std::string(name),
               .where = "--format",
               .remedy = "name one of these"}};
}

std::vector<std::string> formats_for(const spec::Architecture& architecture) {
  std::vector<std::string> names;
  for (const Format& format : formats())
    if (!format.limit(architecture)) names.emplace_back(format.name);
  return names;
}

}  // namespace argosy::interchange
