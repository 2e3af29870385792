#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "crash_journal.hpp"

/// A model of a disk that may forget whatever was not synced. A folder's entries last once the folder was synced after
/// the change; until then any of the changes may be lost. A file's content lasts once the file was synced; what was
/// written since may be there whole, half, not at all, or as zeros. Knows nothing about checkpoints.
namespace argosy::test {

/// What a file holds, kept once.
struct Content {
  std::string bytes;
  Digest digest{};
};

class CrashDisk {
 public:
  /// How much of what was written since the last sync is there after the crash.
  enum class Survival { whole, half, empty, zeros };

  /// What is there after a crash, by path.
  struct Tree {
    std::map<std::string, std::shared_ptr<const Content>> files;
    std::map<std::string, std::string> links;
    std::set<std::string> folders;
    [[nodiscard]] Digest digest() const;
    /// Makes all of it below `root`, which exists.
    void materialise(const Path& root) const;
  };

  /// False when the change does nothing: another rank has told of that file.
  bool apply(const Change& change);

  /// Number of entry changes that a crash may undo, oldest first.
  [[nodiscard]] std::size_t loose_entries() const { return loose_.size(); }
  /// The folders and files there if only the chosen of the loose changes survive; files by inode.
  using Names = std::map<std::string, int>;
  [[nodiscard]] Names names(const std::vector<bool>& survives) const;
  /// The contents that file `inode` may have: one if it is synced.
  [[nodiscard]] const std::vector<std::shared_ptr<const Content>>& contents(int inode);
  [[nodiscard]] bool is_folder(int inode) const { return inodes_[static_cast<std::size_t>(inode)].is_folder; }
  [[nodiscard]] bool is_file(int inode) const { return !is_folder(inode) && link(inode).empty(); }
  [[nodiscard]] const std::string& link(int inode) const { return inodes_[static_cast<std::size_t>(inode)].target; }

 private:
  struct Inode {
    bool is_folder = false;
    std::string target{};                                    // of a link
    std::map<std::string, int> lasting{};                    // a folder's entries that were synced
    std::map<std::string, int> entries{};                    // as a running process sees them
    std::string synced{};                                    // a file's content at its last sync
    std::vector<Change> loose{};                             // writes since
    std::vector<std::shared_ptr<const Content>> contents{};  // made when asked for
  };
  struct Entry {
    int folder;
    std::string name;
    int inode;  // -1: removed
  };
  struct Loose {
    std::vector<Entry> entries;  // a rename has two, which survive together
    std::set<int> folders_left;  // not synced since
  };

  [[nodiscard]] std::pair<int, std::string> place_of(const std::string& path) const;
  [[nodiscard]] int find(const std::string& path) const;  // -1: not there
  int make(Inode inode);
  void change_entries(std::vector<Entry> entries);
  void sync(int inode);
  [[nodiscard]] Inode& at(int inode) { return inodes_[static_cast<std::size_t>(inode)]; }
  [[nodiscard]] const Inode& at(int inode) const { return inodes_[static_cast<std::size_t>(inode)]; }

  std::vector<Inode> inodes_{Inode{.is_folder = true}};  // 0: the root
  std::map<std::int64_t, int> handles_;
  std::vector<Loose> loose_;
};

}  // namespace argosy::test
