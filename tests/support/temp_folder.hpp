#pragma once

#include <random>

#include "core/file.hpp"

namespace argosy::test {

/// A fresh folder for one test, removed with its content at the end.
class TempFolder {
 public:
  TempFolder() {
    std::random_device random;
    path_ =
        std::filesystem::temp_directory_path() / ("argosy-test-" + std::to_string(random()) + std::to_string(random()));
    Files::system().make_folders(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const Path& path() const noexcept { return path_; }
  [[nodiscard]] Path operator/(const Path& name) const { return path_ / name; }

 private:
  Path path_;
};

}  // namespace argosy::test
