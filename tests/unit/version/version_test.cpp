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

TEST(BuiltWith, TellsEveryComponent) {
  std::string names;
  for (const Component& component : built_with()) {
    names += std::string(component.name) + " ";
    EXPECT_THAT(std::string(component.version),
                testing::AnyOf("none", testing::ContainsRegex("^(MPICH )?[0-9]+[.][0-9.]+")));
  }
  EXPECT_EQ(names, "MPI HDF5 LibTorch NCCL CUDA ");
  EXPECT_NE(built_with()[0].version, "MPICH none");
  EXPECT_NE(built_with()[1].version, "none");
}

}  // namespace
}  // namespace argosy
