#include "core/version.hpp"

#include <gmock/gmock.h>

namespace argosy {
namespace {

TEST(Version, IsThreeNumbers) {
  EXPECT_THAT(std::string(version()), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(Version, RevisionIsACommitOrSaysItIsUnknown) {
  EXPECT_THAT(std::string(revision()), testing::MatchesRegex("unknown|[0-9a-f]{12}(-dirty)?"));
}

}  // namespace
}  // namespace argosy
