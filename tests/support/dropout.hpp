#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// BPE-dropout taken literally: of all pairs of neighbours that a merge joins and that have not been passed over, the
/// best comes next, and is passed over with a probability. For words so short that all ways can be followed.
namespace argosy::test {

/// How likely each segmentation of `characters` is. rank(left, right): less is better; nothing: no merge joins them.
inline std::map<std::vector<std::string>, double> dropout_probabilities(
    const std::vector<std::string>& characters, double skip,
    const std::function<std::optional<double>(const std::string&, const std::string&)>& rank) {
  struct Part {
    std::string text;
    int name;  // a part that a merge makes is another one than those that it was made of
  };
  std::map<std::vector<std::string>, double> all;
  std::function<void(std::vector<Part>, std::set<std::pair<int, int>>, int, double)> follow =
      [&](const std::vector<Part>& parts, const std::set<std::pair<int, int>>& passed_over, int names, double p) {
        std::optional<std::pair<double, std::size_t>> best;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
          if (passed_over.contains({parts[i].name, parts[i + 1].name})) continue;
          const auto here = rank(parts[i].text, parts[i + 1].text);
          if (here && (!best || *here < best->first)) best = {*here, i};
        }
        if (!best) {
          std::vector<std::string> texts;
          for (const Part& part : parts) texts.push_back(part.text);
          all[texts] += p;
          return;
        }
        const std::size_t at = best->second;
        auto without = passed_over;
        without.insert({parts[at].name, parts[at + 1].name});
        follow(parts, without, names, p * skip);
        auto merged = parts;
        merged[at] = {parts[at].text + parts[at + 1].text, names};
        merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        follow(merged, passed_over, names + 1, p * (1 - skip));
      };
  std::vector<Part> parts;
  for (const std::string& text : characters) parts.push_back({text, static_cast<int>(parts.size())});
  follow(parts, {}, static_cast<int>(parts.size()), 1);
  return all;
}

}  // namespace argosy::test
