#pragma once

#include <boost/describe.hpp>

/// How ranks may add up gradients, as configurations spell it. Torch- and MPI-free.
namespace argosy::comm {

/// exact: fp32 sums over the local ranks 0, 1, … of a node, then over nodes 0, 1, …: placement and timing change no
/// bit, nodes × ranks do · fast: the backend's own reduce-scatter on both levels, in an order of its own · elastic: one
/// running fp32 sum in the order of micro-batches, the same bits for any number of ranks; for tests, as it sends every
/// micro-batch's contributions to all nodes.
enum class Reduction { exact, fast, elastic };
BOOST_DESCRIBE_ENUM(Reduction, exact, fast, elastic)

}  // namespace argosy::comm
