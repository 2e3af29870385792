#pragma once

#include "support/mpi_test.hpp"

namespace argosy::test {

/// Rank 0 runs `body`. Then all ranks go on. **Collective.**
template <class Body>
void on_root(const Body& body) {
  if (world().rank() == 0) body();
  world().barrier("on_root");
}

}  // namespace argosy::test
