#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "plan/step_plan.hpp"

namespace argosy::test {

/// Who is over before whom: streams run in order, and ops wait for those they name.
class Order {
 public:
  explicit Order(const plan::StepPlan& plan) : before_(plan.ops.size(), std::vector<bool>(plan.ops.size())) {
    std::map<plan::Stream, std::size_t> last;
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const auto after = [&](std::size_t j) {
        for (std::size_t k = 0; k < j; ++k)
          if (before_[j][k]) before_[i][k] = true;
        before_[i][j] = true;
      };
      if (const auto it = last.find(plan.ops[i].stream); it != last.end()) after(it->second);
      for (const int waited : plan.ops[i].waits_for) after(static_cast<std::size_t>(waited));
      last[plan.ops[i].stream] = i;
    }
  }
  [[nodiscard]] bool is_before(std::size_t a, std::size_t b) const { return before_[b][a]; }

 private:
  std::vector<std::vector<bool>> before_;
};

}  // namespace argosy::test
