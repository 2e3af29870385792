#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/mpi_test.hpp"
#include "support/temp_folder.hpp"

namespace argosy::test {

/// One fresh folder for all ranks of a test, removed by rank 0 at the end. **Collective**, begin and end.
class SharedFolder {
 public:
  SharedFolder() {
    if (world().rank() == 0) mine_.emplace();
    path_ = world().broadcast(mine_ ? mine_->path().string() : std::string{});
  }
  ~SharedFolder() {
    try {
      world().barrier("SharedFolder");
    } catch (...) {  // another rank is gone: the folder goes all the same
    }
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  [[nodiscard]] const Path& path() const noexcept { return path_; }
  [[nodiscard]] Path operator/(const Path& name) const { return path_ / name; }
  /// Rank 0 writes; all ranks see the file on return. **Collective.**
  Path write(const std::string& name, const std::string& text) const {
    if (world().rank() == 0) Files::system().write_atomically(path_ / name, text);
    world().barrier("SharedFolder::write");
    return path_ / name;
  }
  /// The names in a folder below, the same on all ranks, whatever one of them does next. **Collective.**
  [[nodiscard]] std::vector<std::string> names(const Path& below = {}) const {
    world().barrier("SharedFolder::names");
    const std::vector<std::string> found = Files::system().list(path_ / below);
    world().barrier("SharedFolder::names read");
    return found;
  }

 private:
  std::optional<TempFolder> mine_;
  Path path_;
};

}  // namespace argosy::test
