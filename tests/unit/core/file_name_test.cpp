#include "core/file_name.hpp"

#include <gtest/gtest.h>

#include "core/file.hpp"
#include "support/temp_folder.hpp"

namespace argosy {
namespace {

TEST(FileName, KnowsItsTemporaryNamesInFullAndNoOthers) {
  for (const std::string name : {"run.json", "a", "x.tmp-0123456789abcdef"}) {
    const std::string partial = partial_name(name);
    EXPECT_EQ(name_of_partial(partial), name);
    EXPECT_NE(partial, partial_name(name));
  }
  for (const char* other :
       {"", "run.json", "notes.tmp-0a", "notes.tmp-of-mine", ".tmp-0123456789abcdef", "run.json.tmp-0123456789abcde",
        "run.json.tmp-0123456789abcdef0", "run.json.tmp-0123456789ABCDEF", "run.json.tmp-0123456789abcdef.old"})
    EXPECT_EQ(name_of_partial(other), std::nullopt) << other;
}

TEST(FileName, CutsWhereACharacterEnds) {
  EXPECT_EQ(cut_name("abc", 3), "abc");
  EXPECT_EQ(cut_name("abcd", 3), "abc");
  EXPECT_EQ(cut_name("aé", 2), "a") << "é takes two bytes";
  EXPECT_EQ(cut_name("aéb", 3), "aé");
}

TEST(FileName, FitsAndStaysApart) {
  EXPECT_EQ(fitting_name("soup", 9), "soup");
  const std::string name(246, 'n');
  EXPECT_EQ(fitting_name(name, 9), name);
  const std::string longer = fitting_name(name + "a", 9);
  EXPECT_EQ(longer.size(), 246U);
  EXPECT_NE(longer, fitting_name(name + "b", 9));
}

TEST(FileName, FilesWithTheLongestNameAreReplacedAtomically) {
  const Files files = Files::system();
  const test::TempFolder folder;
  const std::string name(longest_name_bytes, 'n');
  files.write_atomically(folder / name, std::string_view{"old"});
  files.publish(folder / name, "new");
  EXPECT_EQ(files.read_text(folder / name), "new");
  EXPECT_FALSE(files.write_if_absent(folder / name, "late"));
  EXPECT_EQ(files.list(folder.path()), std::vector<std::string>{name});
}

}  // namespace
}  // namespace argosy
