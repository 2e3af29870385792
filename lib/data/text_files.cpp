#include "data/text_files.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <iterator>

#include "core/error.hpp"

namespace argosy::data {
namespace {

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

bool is_folder(const Files& files, const Path& path) {
  const std::optional<FileStat> stat = files.stat(path);
  return stat && stat->is_directory;
}

/// Adds the files below `folder` that match the parts [part, end) of a pattern.
void add_matches(const Files& files, const Path& folder, Path::const_iterator part, Path::const_iterator end,
                 std::vector<Path>& found) {
  const Path listed = folder.empty() ? Path{"."} : folder;
  const std::string name = part->string();
  const auto rest = std::next(part);
  if (!is_pattern(name)) {  // of a folder, or after one that matches
    const Path path = folder / name;
    const std::optional<FileStat> stat = files.stat(path);
    if (stat && stat->is_directory && rest != end) add_matches(files, path, rest, end, found);
    if (stat && stat->is_regular && rest == end) found.push_back(path);
    return;
  }
  if (!is_folder(files, listed)) return;
  const bool any_depth = name == "**" && rest != end;
  if (any_depth) add_matches(files, folder, rest, end, found);
  for (const std::string& entry : files.list(listed)) {
    const bool hidden = entry.starts_with('.') && !name.starts_with('.');
    if (hidden || fnmatch(name.c_str(), entry.c_str(), 0) != 0) continue;
    const Path path = folder / entry;
    const std::optional<FileStat> stat = files.stat(path);
    if (!stat) continue;
    if (stat->is_directory && rest != end) {
      // A link to a folder is not followed by **, which could go round in circles.
      if (!any_depth) add_matches(files, path, rest, end, found);
      if (any_depth && !std::filesystem::is_symlink(path)) add_matches(files, path, part, end, found);
    }
    if (stat->is_regular && rest == end) found.push_back(path);
  }
}

std::vector<Path> all_matches(const Files& files, const config::StringOrList& names) {
  std::vector<Path> all;
  for (const std::string& name : names.items) {
    std::vector<Path> some = matching_files(files, name);
    std::ranges::move(some, std::back_inserter(all));
  }
  return all;
}

}  // namespace

std::vector<Path> matching_files(const Files& files, const std::string& name) {
  if (!is_pattern(name) || files.exists(name)) return {name};
  const Path pattern = Path{name}.lexically_normal();
  const Path root = pattern.root_path();
  std::vector<Path> found;
  const Path relative = pattern.relative_path();
  add_matches(files, root, relative.begin(), relative.end(), found);
  std::ranges::sort(found, {}, [](const Path& path) -> const std::string& { return path.native(); });
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.empty())
    throw_claim(Fault::data, "no file matches " + name, name, "a pattern that matches files", "one that matches none",
                "correct the pattern, or put the files there");
  return found;
}

TextFiles find_text_files(const Files& files, const config::StringOrList& source,
                          const std::optional<config::StringOrList>& target, const std::string& where) {
  TextFiles found{all_matches(files, source), {}};
  if (!target) return found;
  found.target = all_matches(files, *target);
  if (found.source.size() == found.target.size()) return found;
  throw_error(Fault::data, where, "as many target files as source files",
              fmt::format("{} of source and {} of target", found.source.size(), found.target.size()),
              "name a target for each source");
}

std::vector<TextFiles> find_text_files(const Files& files, const DataConfig& data) {
  std::vector<TextFiles> found;
  found.reserve(data.corpora.size());
  for (const CorpusConfig& corpus : data.corpora)
    found.push_back(find_text_files(files, corpus.source, corpus.target, "corpus " + corpus.name));
  return found;
}

}  // namespace argosy::data
