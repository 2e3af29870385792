#include "soup/journal.hpp"

#include <bit>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace argosy::soup {
namespace {

namespace json = boost::json;

/// {"KEY":"bits of the loss", …}; decimals would come back a digit off.
std::map<std::string, double> losses_in(const std::string& text) {
  std::map<std::string, double> losses;
  json::error_code error;
  const json::value root = json::parse(text, error);
  if (error || !root.is_object()) return losses;
  for (const auto& member : root.get_object()) {
    if (!member.value().is_string()) continue;
    const std::string_view bits = member.value().get_string();
    std::uint64_t value = 0;
    const auto [end, fault] = std::from_chars(bits.data(), bits.data() + bits.size(), value, 16);
    if (fault == std::errc{} && end == bits.data() + bits.size())
      losses.emplace(member.key(), std::bit_cast<double>(value));
  }
  return losses;
}

}  // namespace

Journal::Journal(const comm::Context& context, const Path& target, std::string identity)
    : context_(context),
      path_(target.parent_path() / fmt::format(".{}.journal", target.filename().string())),
      identity_(std::move(identity)) {
  constexpr std::uint64_t limit_bytes = 16ULL << 20;
  std::string text;
  if (context.is_root() && context.files.exists(path_)) {
    try {
      text = context.files.read_text(path_, limit_bytes);
    } catch (const Error& error) {  // only time is lost
      context.log.warn("{}", error.what());
    }
  }
  losses_ = losses_in(context.world.broadcast(std::move(text)));
  if (!losses_.empty()) context.log.info("{} holds {} losses already", path_.string(), losses_.size());
}

std::string Journal::key_of(const Ingredients& ingredients, DType dtype) const {
  Hasher hasher;
  hasher.update(identity_).update(std::string_view{"\0", 1}).update(name_of(dtype));
  for (const checkpoint::Reader* const reader : ingredients.readers) hasher.update(reader->self_digest());
  const Mixture& mixture = ingredients.mixture;
  hasher.update(std::as_bytes(std::span{mixture.weights})).update(std::as_bytes(std::span{&mixture.divisor, 1}));
  return hasher.digest().hex();
}

double Journal::loss_of(const Ingredients& ingredients, DType dtype, const std::function<double()>& evaluate) {
  const std::string key = key_of(ingredients, dtype);
  if (const auto known = losses_.find(key); known != losses_.end()) return known->second;
  const double loss = evaluate();
  losses_.emplace(key, loss);
  comm::agree(context_.world, [&] {
    if (context_.is_root()) write();
  });
  return loss;
}

void Journal::write() const {
  json::object document;
  for (const auto& [key, loss] : losses_) document[key] = fmt::format("{:016x}", std::bit_cast<std::uint64_t>(loss));
  if (!path_.parent_path().empty()) context_.files.make_folders(path_.parent_path());
  context_.files.write_atomically(path_, json::serialize(document));
}

void Journal::finish() {
  comm::agree(context_.world, [&] {
    if (context_.is_root()) context_.files.remove(path_);
  });
}

}  // namespace argosy::soup
