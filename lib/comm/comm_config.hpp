#pragma once

#include <boost/describe.hpp>

/// The key `comm` of a configuration. Its text and range stand with the configuration it is part of, since comm may not
/// see config.
namespace argosy::comm {

struct CommConfig {
  double timeout_s = 600;  // how long a rank waits for the others in one operation; above 0
};
BOOST_DESCRIBE_STRUCT(CommConfig, (), (timeout_s))

}  // namespace argosy::comm
