#pragma once

#include <boost/describe.hpp>

/// What a configuration says about communication: the key `comm`, and how ranks add up gradients. Help texts and ranges
/// are defined with the run's configuration, because comm does not include config. Free of LibTorch and MPI.
namespace argosy::comm {

struct CommConfig {
  double timeout_s = 600;  // how long a rank waits for the others in one operation; above 0
};
BOOST_DESCRIBE_STRUCT(CommConfig, (), (timeout_s))

/// exact: fp32 sums over the local ranks 0, 1, … of a node, then over nodes 0, 1, …. Placement and timing change no
/// bit; the numbers of nodes and ranks do. fast: the backend's own reduce-scatter on both levels, in an order that the
/// backend chooses. elastic: one running fp32 sum in the order of micro-batches. The number of ranks changes no bit.
/// For tests, because the contributions of every micro-batch go to all nodes.
enum class Reduction { exact, fast, elastic };
BOOST_DESCRIBE_ENUM(Reduction, exact, fast, elastic)

}  // namespace argosy::comm
