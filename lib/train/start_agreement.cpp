#include "train/start_agreement.hpp"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <set>

#include "config/describe.hpp"
#include "core/error.hpp"
#include "core/version.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

std::string both(std::string_view what, std::string_view first, int rank, std::string_view other) {
  return fmt::format("{} is {} on rank 0 and {} on rank {}", what, first, other, rank);
}

struct Difference {
  std::string key, first, other;  // "data.corpora.0.source" and its values; "none" where there is no such key
};

/// The first difference in the order of keys.
std::optional<Difference> difference(const json::value& first, const json::value& other, const std::string& key) {
  const auto below = [&](std::string_view name) {
    return key.empty() ? std::string(name) : fmt::format("{}.{}", key, name);
  };
  if (first.is_object() && other.is_object()) {
    std::set<std::string_view> names;
    for (const json::value* side : {&first, &other})
      for (const auto& member : side->get_object()) names.insert(member.key());
    for (const std::string_view name : names) {
      const json::value *left = first.get_object().if_contains(name), *right = other.get_object().if_contains(name);
      if (left == nullptr || right == nullptr) {
        const auto text = [](const json::value* value) {
          return value == nullptr ? "none" : config::text_of(*value, false);
        };
        return Difference{below(name), text(left), text(right)};
      }
      if (auto found = difference(*left, *right, below(name))) return found;
    }
    return std::nullopt;
  }
  if (first.is_array() && other.is_array() && first.get_array().size() == other.get_array().size()) {
    for (std::size_t i = 0; i < first.get_array().size(); ++i) {
      if (auto found = difference(first.get_array()[i], other.get_array()[i], below(std::to_string(i)))) return found;
    }
    return std::nullopt;
  }
  if (first == other) return std::nullopt;
  return Difference{key, config::text_of(first, false), config::text_of(other, false)};
}

}  // namespace

std::string code_version() { return fmt::format("argosy {} ({})", version(), revision()); }

void require_same_start(const comm::Communicator& world, const plan::RunConfig& config,
                        const boost::json::object& command_line, const std::string& code) {
  if (const auto odd = comm::odd_one(world, code))
    throw_claim(Fault::config, both("the build", odd->first, odd->rank, odd->other), "", "the same build on all ranks",
                both("the build", odd->first, odd->rank, odd->other), "start all ranks from one build");
  json::object all = config::to_json(config).as_object();
  for (const auto& [option, value] : command_line) all[option] = value;
  const std::string text = config::text_of(all, false);
  const auto odd = comm::odd_one(world, text);
  if (!odd) return;
  const auto found = difference(json::parse(odd->first), json::parse(odd->other), "");
  ARGOSY_CHECK(found, "the same configuration has other texts on ranks 0 and {}", odd->rank);
  const std::string got = both(found->key, found->first, odd->rank, found->other);
  const std::string remedy = "start all ranks with the same configuration file and options";
  throw_claim(Fault::config, got, "", "the same configuration on all ranks", got, remedy);
}

Digest same_on_all_ranks(const comm::Communicator& world, const Digest& digest, std::string_view what,
                         std::string_view key) {
  if (const auto odd = comm::odd_one(world, digest.hex())) {
    const std::string got = both("their digest", odd->first, odd->rank, odd->other);
    const std::string remedy = "give all nodes the same files, preferably in one shared folder";
    throw_claim(Fault::data, fmt::format("{}: the ranks read different {}: {}", key, what, got), std::string(key),
                fmt::format("the same {} on all ranks", what), got, remedy);
  }
  return digest;
}

}  // namespace argosy::train
