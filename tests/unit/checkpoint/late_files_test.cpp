#include "load_fixture.hpp"
#include "support/fixed_clock.hpp"

namespace argosy::checkpoint {
namespace {

/// A door that shows some files only after a while.
class LateOs : public Os {
 public:
  LateOs(int error, const Clock& clock, double from_s) : error_(error), clock_(clock), from_s_(from_s) {}
  int open(const char* path, int flags, unsigned mode) override {
    if (std::string_view{path}.find("shard-") == std::string_view::npos || clock_.monotonic_s() >= from_s_)
      return Os::open(path, flags, mode);
    errno = error_;
    return -1;
  }

 private:
  int error_;
  const Clock& clock_;
  double from_s_;
};

class LateFiles : public testing::TestWithParam<int> {};

TEST_P(LateFiles, AreWaitedForAMinute) {
  const test::TempFolder folder;
  test::write_checkpoint(Files::system(), folder / "c", test::tiny_units(), partition::Layout{{2}}, 4);
  const std::string text = Files::system().read_text(folder / "c/MANIFEST.json");
  for (const double late_s : {0.0, 0.5, 50.0, 100.0}) {
    const test::FixedClock clock;
    LateOs os{GetParam(), clock, late_s};
    const Reader reader{Files{os}, folder / "c", text, &clock};
    if (late_s > 60) {
      test::Toy got{test::tiny_units(), partition::Layout{{1}}, 0};
      const std::string said = test::refusal(Fault::io, [&] { reader.read_state(got.states(), 0); });
      EXPECT_TRUE(test::says(said, strerrorname_np(GetParam())));
      EXPECT_GE(clock.now_s, 60);
      EXPECT_LT(clock.now_s, 70);
    } else {
      expect_state(reader, test::tiny_units(), {{1}}, 4);
      EXPECT_LT(clock.now_s, late_s * 2 + 0.1) << "no longer than needed";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LateFiles, testing::Values(ENOENT, ESTALE),
                         [](const auto& test) { return strerrorname_np(test.param); });

}  // namespace
}  // namespace argosy::checkpoint
