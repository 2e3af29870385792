#include "comm/comm.hpp"

#include <array>
#include <boost/describe.hpp>
#include <cstdlib>
#include <utility>

#include "comm/message.hpp"
#include "comm/session.hpp"

namespace argosy {

BOOST_DESCRIBE_STRUCT(Facts, (), (sentence, wanted, got, where, remedy))

}  // namespace argosy

namespace argosy::comm {
namespace {

/// One rank's error, as the others are told.
struct RankError {
  int fault = static_cast<int>(Fault::internal);
  Facts facts;
};
BOOST_DESCRIBE_STRUCT(RankError, (), (fault, facts))

}  // namespace

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const noexcept { return impl_->rank; }
int Communicator::size() const noexcept { return impl_->size; }

Communicator Communicator::split(int color, int key) const {
  ARGOSY_CHECK(color >= 0, "color {}", color);
  return Communicator{impl_->split(color, key)};
}

Communicator Communicator::duplicate() const { return Communicator{impl_->duplicate()}; }

ControlTraffic Communicator::control_traffic() const { return impl_->session.control_traffic(); }

void Communicator::configure(const CommConfig& config) const {
  if (std::getenv(Session::timeout_variable) == nullptr) impl_->session.timeout_s = config.timeout_s;
}

std::optional<Odd> odd_one(const Communicator& world, const std::string& text) {
  const std::string first = world.broadcast(text);
  const std::optional<int> rank = lowest_rank(world, text != first);
  if (!rank) return std::nullopt;
  return Odd{.rank = *rank, .first = first, .other = world.broadcast(text, *rank)};
}

void agree(const Communicator& world, const std::function<void()>& body) {
  std::optional<RankError> mine;
  try {
    std::jthread attendant;
    if (world.size() > 1) attendant = world.impl().session.attendant();
    body();
  } catch (const Error& error) {
    if (error.fault() == Fault::comm || world.size() == 1) throw;
    mine = {static_cast<int>(error.fault()), error.facts()};
  } catch (const std::exception& error) {
    mine = {.facts = {.sentence = fmt::format("unexpected internal error: {}", error.what()), .got = error.what()}};
  }
  const std::optional<int> failing = lowest_rank(world, mine.has_value());
  if (!failing) return;
  auto [fault, facts] = from_message<RankError>(world.broadcast(mine ? to_message(*mine) : "", *failing));
  if (world.size() > 1) {
    facts.where = fmt::format("rank {}{}{}", *failing, facts.where.empty() ? "" : ": ", facts.where);
    if (!facts.sentence.empty()) facts.sentence = fmt::format("rank {}: {}", *failing, facts.sentence);
  }
  throw Error{static_cast<Fault>(fault), std::move(facts)};
}

void at_root(const Communicator& world, const std::function<void()>& body) {
  agree(
      world, world.rank() == 0 ? body : [] {});
}

bool any_of(const Communicator& world, bool value) { return lowest_rank(world, value).has_value(); }

std::optional<int> lowest_rank(const Communicator& world, bool value) {
  std::array<std::int64_t, 1> lowest{value ? world.rank() : world.size()};
  world.all_reduce(std::span<std::int64_t>{lowest}, Reduce::min);
  return lowest[0] == world.size() ? std::nullopt : std::optional{static_cast<int>(lowest[0])};
}

}  // namespace argosy::comm
