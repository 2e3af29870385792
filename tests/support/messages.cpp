// Every error that a module's unit tests meet, as a list that people can read: tests/unit/<module>/messages.golden.
// ARGOSY_WRITE_MESSAGES=1 adds what is not listed; remove the file first to drop what is no longer said.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <typeinfo>

#include "core/error.hpp"
#include "core/file.hpp"

namespace argosy::test {
namespace {

constexpr std::size_t most_of_a_place = 12;  // one line of code may say many things

std::mutex mutex;
/// By the place of the throw: texts by what is left of them without numbers, quotes and what was got.
std::map<std::pair<std::string, unsigned>, std::map<std::string, std::string>> met;

/// Of the environment that ctest makes; empty: not by ctest.
std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Without what differs from run to run or from machine to machine.
std::string steady(std::string text) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const auto replace = [&](const std::string& what, const std::string& by) {
    for (std::size_t at = text.find(what); !what.empty() && at != std::string::npos;
         at = text.find(what, at + by.size()))
      text.replace(at, what.size(), by);
  };
  replace(setting("ARGOSY_SOURCE_DIR"), "SOURCE");
  replace(host, "HOST");
  for (const auto& [pattern, by] : {std::pair{"/(tmp|dev/shm)/[^ /:,;)\"']+", "TMP"},
                                    {"[.]tmp-[^ /:,;]+", ".tmp"},
                                    {"(process |/proc/)[0-9]+", "$1N"},  // also of few digits
                                    {"[0-9a-f]{12,}", "DIGEST"},
                                    {"[0-9][0-9.]*[0-9]{3,}|[0-9]{4,}", "N"},
                                    {"[^ -~\n]+", "\u2026"},
                                    {"\n *", " / "}})
    text = std::regex_replace(text, std::regex(pattern), by);
  return text.size() > 400 ? text.substr(0, 400) : text;
}

void note(const Error& error) {
  static const std::string own = "/lib/" + setting("ARGOSY_TESTED_MODULE") + "/";
  const std::string file = error.at().file_name();
  const bool by_config = file.find("/lib/config/") != std::string::npos;  // says what modules want of their keys
  if (error.fault() == Fault::internal || (file.find(own) == std::string::npos && !by_config)) return;
  const testing::TestSuite* const suite = testing::UnitTest::GetInstance()->current_test_suite();
  for (const char* random : {"Damage", "Forged", "Numbers"})  // theirs would fill the list
    if (suite != nullptr && std::string_view(suite->name()).find(random) != std::string_view::npos) return;
  const std::lock_guard lock{mutex};
  const std::string text = steady(error.what());
  const std::string kind = std::regex_replace(text, std::regex("got [^;/]*|[0-9N]+|`[^`]*`|\"[^\"]*\"|TMP[^ :]*"), "");
  std::map<std::string, std::string>& here = met[{file, error.at().line()}];
  if (here.size() < most_of_a_place || by_config) here.emplace(kind, text);
}

class Messages : public testing::Environment {
  void TearDown() override {
    if (setting("ARGOSY_TESTED_MODULE").empty()) return;
    if (testing::GTEST_FLAG(filter) != "*" || testing::UnitTest::GetInstance()->Failed()) return;
    std::set<std::string> lines;
    for (const auto& [place, texts] : met)
      for (const auto& [kind, line] : texts) lines.insert(line);
    const Path path =
        Path(setting("ARGOSY_SOURCE_DIR")) / "tests/unit" / setting("ARGOSY_TESTED_MODULE") / "messages.golden";
    const Files files = Files::system();
    std::set<std::string> listed;
    if (files.exists(path)) {
      std::istringstream text(files.read_text(path));
      for (std::string line; std::getline(text, line);) listed.insert(line);
    }
    if (std::getenv("ARGOSY_WRITE_MESSAGES") != nullptr) {
      lines.merge(listed);  // a module may have several test programs
      std::string text;
      for (const std::string& line : lines) text += line + "\n";
      if (!lines.empty()) files.write_atomically(path, text);
      return;
    }
    for (const std::string& line : lines)
      EXPECT_TRUE(listed.contains(line))
          << path << " lacks: " << line << "\nRemove the file and run the module's tests with ARGOSY_WRITE_MESSAGES=1.";
  }
};

const testing::Environment* const messages = testing::AddGlobalTestEnvironment(new Messages);

}  // namespace
}  // namespace argosy::test

// Called in place of the C++ runtime's, which it calls. Declared as GCC has it built in.
extern "C" void __cxa_throw(void* thrown, void* type, void (*destroy)(void*)) {
  using Throw = void (*)(void*, void*, void (*)(void*));
  static const auto next = reinterpret_cast<Throw>(dlsym(RTLD_NEXT, "__cxa_throw"));
  if (*static_cast<const std::type_info*>(type) == typeid(argosy::Error))
    argosy::test::note(*static_cast<const argosy::Error*>(thrown));
  next(thrown, type, destroy);
  std::abort();
}
