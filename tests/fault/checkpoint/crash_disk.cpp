#include "crash_disk.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace argosy::test {
namespace {

std::shared_ptr<const Content> content_of(std::string bytes) {
  const Digest digest = digest_of(std::string_view{bytes});
  return std::make_shared<const Content>(Content{std::move(bytes), digest});
}

/// `name` in a folder becomes `inode`; below 0 it is removed.
void enter(std::map<std::string, int>& entries, const std::string& name, int inode) {
  if (inode < 0) {
    entries.erase(name);
  } else {
    entries[name] = inode;
  }
}

/// `change` done to `bytes`, `share` of it only, or as zeros.
void write(std::string& bytes, const Change& change, std::size_t size, bool zeros) {
  const auto grow = [&](std::size_t wanted) {
    if (bytes.size() < wanted) bytes.resize(wanted, '\0');
  };
  switch (change.kind) {
    case Change::Kind::truncate:
      bytes.resize(static_cast<std::size_t>(change.number), '\0');
      return;
    case Change::Kind::extend:
      grow(static_cast<std::size_t>(change.number));
      return;
    default: {
      const std::size_t offset = change.number < 0 ? bytes.size() : static_cast<std::size_t>(change.number);
      grow(offset + size);
      bytes.replace(offset, size, zeros ? std::string(size, '\0') : change.content.substr(0, size));
    }
  }
}

}  // namespace

std::pair<int, std::string> CrashDisk::place_of(const std::string& path) const {
  int folder = 0;
  std::size_t begin = 0;
  for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', begin)) {
    const auto found = at(folder).entries.find(path.substr(begin, end - begin));
    ARGOSY_CHECK(found != at(folder).entries.end(), "the journal has no folder for {}", path);
    folder = found->second;
    begin = end + 1;
  }
  return {folder, path.substr(begin)};
}

int CrashDisk::find(const std::string& path) const {
  if (path.empty()) return 0;
  const auto [folder, name] = place_of(path);
  const auto found = at(folder).entries.find(name);
  return found == at(folder).entries.end() ? -1 : found->second;
}

int CrashDisk::make(Inode inode) {
  inodes_.push_back(std::move(inode));
  return static_cast<int>(inodes_.size()) - 1;
}

void CrashDisk::change_entries(std::vector<Entry> entries) {
  Loose loose{.entries = std::move(entries), .folders_left = {}};
  for (const Entry& entry : loose.entries) {
    enter(at(entry.folder).entries, entry.name, entry.inode);
    loose.folders_left.insert(entry.folder);
  }
  loose_.push_back(std::move(loose));
}

void CrashDisk::sync(int inode) {
  Inode& synced = at(inode);
  if (!synced.is_folder) {
    for (const Change& change : synced.loose) write(synced.synced, change, change.content.size(), false);
    synced.loose.clear();
    synced.contents.clear();
    return;
  }
  // A folder's changes come to last together and in their order, so they can be done to its lasting entries now.
  std::vector<Loose> left;
  for (Loose& loose : loose_) {
    loose.folders_left.erase(inode);
    if (!loose.folders_left.empty()) {
      left.push_back(std::move(loose));
      continue;
    }
    for (const Entry& entry : loose.entries) enter(at(entry.folder).lasting, entry.name, entry.inode);
  }
  loose_ = std::move(left);
}

bool CrashDisk::apply(const Change& change) {
  using Kind = Change::Kind;
  const auto with_handle = [&] {
    const auto found = handles_.find(change.handle);
    ARGOSY_CHECK(found != handles_.end(), "the journal has no open for {}", change.text());
    return found->second;
  };
  const auto change_one = [&](int inode) {
    const auto [folder, name] = place_of(change.path);
    change_entries({{folder, name, inode}});
  };
  switch (change.kind) {
    case Kind::mkdir:
      change_one(make({.is_folder = true}));
      break;
    case Kind::symlink:
      change_one(make({.target = change.to}));
      break;
    case Kind::create: {
      int inode = find(change.path);
      if (inode >= 0 && change.only_if_absent) {
        handles_[change.handle] = -1;
        return false;
      }
      if (inode < 0) {
        inode = make({});
        change_one(inode);
      } else if (change.number != 0) {
        at(inode).loose.push_back({.kind = Kind::truncate, .path = change.path});
        at(inode).contents.clear();
      }
      handles_[change.handle] = inode;
      break;
    }
    case Kind::write:
    case Kind::extend:
    case Kind::truncate:
      if (const int inode = with_handle(); inode >= 0) {
        at(inode).loose.push_back(change);
        at(inode).contents.clear();
        break;
      }
      return false;
    case Kind::fsync:
      if (const int inode = with_handle(); inode >= 0) {
        sync(inode);
        break;
      }
      return false;
    case Kind::rename: {
      const auto [from_folder, from] = place_of(change.path);
      const auto [to_folder, to] = place_of(change.to);
      change_entries({{from_folder, from, -1}, {to_folder, to, find(change.path)}});
      break;
    }
    case Kind::unlink:
    case Kind::rmdir:
      change_one(-1);
      break;
    case Kind::acknowledge:
      break;
  }
  return true;
}

CrashDisk::Names CrashDisk::names(const std::vector<bool>& survives) const {
  // Entries of the folders that lost changes touch; all others are as they last.
  std::map<int, std::map<std::string, int>> changed;
  for (std::size_t i = 0; i < loose_.size(); ++i) {
    if (!survives[i]) continue;
    for (const Entry& entry : loose_[i].entries)
      enter(changed.try_emplace(entry.folder, at(entry.folder).lasting).first->second, entry.name, entry.inode);
  }
  Names names;
  const auto walk = [&](const auto& self, int folder, const std::string& prefix) -> void {
    const auto found = changed.find(folder);
    for (const auto& [name, inode] : found == changed.end() ? at(folder).lasting : found->second) {
      names[prefix + name] = inode;
      if (is_folder(inode)) self(self, inode, prefix + name + "/");
    }
  };
  walk(walk, 0, "");
  return names;
}

const std::vector<std::shared_ptr<const Content>>& CrashDisk::contents(int inode) {
  Inode& file = at(inode);
  if (!file.contents.empty()) return file.contents;
  std::size_t loose_bytes = 0;
  for (const Change& change : file.loose) loose_bytes += change.content.size();
  for (const Survival survival : {Survival::whole, Survival::half, Survival::empty, Survival::zeros}) {
    std::string bytes = file.synced;
    std::size_t left = survival == Survival::half ? loose_bytes / 2 : survival == Survival::empty ? 0 : loose_bytes;
    for (const Change& change : file.loose) {
      if (survival == Survival::empty) break;
      const std::size_t size = std::min(left, change.content.size());
      if (change.content.empty() || size > 0) write(bytes, change, size, survival == Survival::zeros);
      left -= size;
    }
    auto content = content_of(std::move(bytes));
    const bool known = std::any_of(file.contents.begin(), file.contents.end(),
                                   [&](const auto& other) { return other->digest == content->digest; });
    if (!known) file.contents.push_back(std::move(content));
    if (file.loose.empty()) break;
  }
  return file.contents;
}

Digest CrashDisk::Tree::digest() const {
  Hasher hasher;
  const std::string_view end{"\0", 1};
  for (const std::string& folder : folders) hasher.update(folder).update(end);
  hasher.update(end);
  for (const auto& [path, content] : files) {
    hasher.update(path).update(end);
    hasher.update(std::as_bytes(std::span{content->digest.bytes}));
  }
  hasher.update(end);
  for (const auto& [path, target] : links) hasher.update(path).update(end).update(target).update(end);
  return hasher.digest();
}

void CrashDisk::Tree::materialise(const Path& root) const {
  const Files files_here = Files::system();
  for (const std::string& folder : folders) files_here.make_folder(root / folder);  // sorted: parents come first
  for (const auto& [path, content] : files) {
    File file = files_here.create(root / path);
    if (content->bytes.find_first_not_of('\0') == std::string::npos) {
      file.truncate(content->bytes.size());
    } else {
      file.write_at(as_bytes(content->bytes), 0);
    }
    file.close();
  }
  for (const auto& [path, target] : links) files_here.link_symbolically(target, root / path);
}

}  // namespace argosy::test
