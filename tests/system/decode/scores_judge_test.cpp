#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>

#include "core/file.hpp"
#include "decode/scores.hpp"
#include "decode/ter.hpp"
#include "support/judge.hpp"
#include "support/temp_folder.hpp"

/// sacreBLEU judges BLEU, chrF and TER.
namespace argosy::decode {
namespace {

namespace json = boost::json;

struct Kind {
  int sets = 0;
  double edit_rates = 0;
};

class ScoresJudge : public testing::Test {
 protected:
  /// One metric of a set: every bit of the score, and what sacreBLEU prints of it.
  template <class Counts>
  static double compare(const char* name, const json::object& set) {
    Counts counts;
    const json::array &hypotheses = set.at("hypotheses").as_array(), &references = set.at("references").as_array();
    for (std::size_t i = 0; i < hypotheses.size(); ++i)
      counts.add(std::string_view(hypotheses[i].as_string()), std::string_view(references[i].as_string()));
    EXPECT_EQ(counts.score(), std::strtod(set.at(name).as_string().c_str(), nullptr))
        << name << " of " << json::serialize(set);
    EXPECT_EQ(fmt::format("{:.2f}", counts.score()), set.at("printed").at(name).as_string()) << json::serialize(set);
    return counts.score();
  }
  static void expect_settings(std::string_view ours, const json::value& theirs) {
    EXPECT_EQ(ours, theirs.as_string().subview(0, theirs.as_string().find("|version:")));
  }
  const Files files = Files::system();
  test::TempFolder folder;
};

TEST_F(ScoresJudge, AgreesOn200SetsOfLines) {
  const int code = test::run_judge("scores_judge.py", fmt::format("'{}'", (folder / "sets.json").string()));
  if (code == test::no_judges) GTEST_SKIP() << test::no_judges_text;
  ASSERT_EQ(code, 0);
  const json::value judged = json::parse(files.read_text(folder / "sets.json"));
  const json::value& signatures = judged.at("signatures");
  expect_settings(BleuCounts::settings, signatures.at("bleu"));
  expect_settings(ChrfCounts::settings, signatures.at("chrf"));
  expect_settings(TerCounts::settings, signatures.at("ter"));

  std::map<std::string, Kind> kinds;
  for (const json::value& set : judged.at("sets").as_array()) {
    compare<BleuCounts>("bleu", set.as_object());
    compare<ChrfCounts>("chrf", set.as_object());
    Kind& kind = kinds[json::value_to<std::string>(set.at("kind"))];
    kind.edit_rates += compare<TerCounts>("ter", set.as_object());
    ++kind.sets;
  }
  int sets = 0;
  for (const auto& [name, kind] : kinds) {
    EXPECT_GT(kind.edit_rates, 0) << name << ": all lines are equal, which shows nothing";
    sets += kind.sets;
  }
  EXPECT_EQ(sets, 200);
  EXPECT_EQ(kinds.size(), 14);
}

}  // namespace
}  // namespace argosy::decode
