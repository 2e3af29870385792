#pragma once

#include <vector>

#include "config/config.hpp"
#include "core/file.hpp"
#include "data/data_config.hpp"

/// From names in a configuration, which may be patterns, to files. Any thread.
namespace argosy::data {

/// The files of a corpus. Line i of target[f] translates line i of source[f]; without targets a record has all.
struct TextFiles {
  std::vector<Path> source, target;
};

/// The files that a name stands for. A name of an existing file is that file. Else * ? and [a-z] match within a name,
/// as in a shell, and ** any number of folders; the regular files that match are sorted bytewise. A name without any of
/// these is returned as it is. Throws Error{data} for a pattern that matches nothing.
[[nodiscard]] std::vector<Path> matching_files(const Files& files, const std::string& name);

/// The files of one corpus or validation set; `where` stands in messages. Throws Error{data} as matching_files, and
/// when the numbers of sources and targets differ.
[[nodiscard]] TextFiles find_text_files(const Files& files, const config::StringOrList& source,
                                        const std::optional<config::StringOrList>& target, const std::string& where);
/// Those of all corpora, in order.
[[nodiscard]] std::vector<TextFiles> find_text_files(const Files& files, const DataConfig& data);

}  // namespace argosy::data
