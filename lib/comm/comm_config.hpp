#pragma once

#include <boost/describe.hpp>

/// The key `comm` of a configuration. Its help text and range are defined with the run's configuration, because comm
/// does not include config.
namespace argosy::comm {

struct CommConfig {
  double timeout_s = 600;  // how long a rank waits for the others in one operation; above 0
};
BOOST_DESCRIBE_STRUCT(CommConfig, (), (timeout_s))

}  // namespace argosy::comm
