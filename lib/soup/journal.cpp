#include "soup/journal.hpp"

#include <bit>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <utility>

#include "core/error.hpp"
#include "core/file_name.hpp"
#include "core/hash.hpp"

namespace argosy::soup {
namespace {

namespace json = boost::json;

constexpr std::size_t journal_bytes = 9;  // of "." and ".journal"

std::string text_of(double number) { return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(number)); }

/// {"KEY": [bits of the loss, bits of each part …], …}; decimals would come back a digit off.
std::map<std::string, Judgement> judgements_in(const std::string& text) {
  std::map<std::string, Judgement> known;
  json::error_code error;
  const json::value root = json::parse(text, error);
  if (error || !root.is_object()) return known;
  for (const auto& member : root.get_object()) {
    std::vector<double> numbers;
    if (!member.value().is_array()) continue;
    for (const json::value& value : member.value().get_array()) {
      if (!value.is_string()) break;
      const std::string_view bits = value.get_string();
      std::uint64_t number = 0;
      const auto [end, fault] = std::from_chars(bits.data(), bits.data() + bits.size(), number, 16);
      if (fault != std::errc{} || end != bits.data() + bits.size()) break;
      numbers.push_back(std::bit_cast<double>(number));
    }
    if (numbers.empty() || numbers.size() != member.value().get_array().size()) continue;
    known.emplace(member.key(), Judgement{numbers.front(), {numbers.begin() + 1, numbers.end()}});
  }
  return known;
}

}  // namespace

Journal::Journal(const comm::Context& context, const Path& target, std::string identity)
    : context_(context),
      path_(target.parent_path() / fmt::format(".{}.journal", fitting_name(target.filename().string(), journal_bytes))),
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
  known_ = judgements_in(context.world.broadcast(std::move(text)));
  if (!known_.empty()) context.log.info("{} holds {} losses already", path_.string(), known_.size());
}

std::string Journal::key_of(const Ingredients& ingredients, DType dtype) const {
  Hasher hasher;
  hasher.update(identity_).update(std::string_view{"\0", 1}).update(name_of(dtype));
  // Batches are dealt over the ranks: of another number of them the parts have another order, and there may be others.
  hasher.update(fmt::format("of {} ranks", context_.world.size()));
  for (const checkpoint::Reader* const reader : ingredients.readers) hasher.update(reader->self_digest());
  const Mixture& mixture = ingredients.mixture;
  hasher.update(std::as_bytes(std::span{mixture.weights})).update(std::as_bytes(std::span{&mixture.divisor, 1}));
  return hasher.digest().hex();
}

Judgement Journal::judgement_of(const Ingredients& ingredients, DType dtype,
                                const std::function<Judgement()>& evaluate) {
  const std::string key = key_of(ingredients, dtype);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  Judgement judgement = evaluate();
  known_.emplace(key, judgement);
  comm::agree(context_.world, [&] {
    if (context_.is_root()) write();
  });
  return judgement;
}

void Journal::write() const {
  json::object document;
  for (const auto& [key, judgement] : known_) {
    json::array& numbers = document.emplace(key, json::array{}).first->value().get_array();
    numbers.push_back(json::string(text_of(judgement.loss)));
    for (const double part : judgement.parts) numbers.push_back(json::string(text_of(part)));
  }
  if (!path_.parent_path().empty()) context_.files.make_folders(path_.parent_path());
  context_.files.write_atomically(path_, json::serialize(document));
}

void Journal::finish() {
  comm::agree(context_.world, [&] {
    if (context_.is_root()) context_.files.remove(path_);
  });
}

}  // namespace argosy::soup
