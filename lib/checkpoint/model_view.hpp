#pragma once

#include <string>

#include "checkpoint/manifest.hpp"

/// model.h5 shows every parameter of a checkpoint in its own shape to people with h5ls, h5dump or h5py. Its virtual
/// datasets refer to the shards next to it; it holds no weights. The manifest has no digest of it, and Argosy never
/// reads it. Missing shards read as NaN. HDF5 makes the file in memory; it is written like any other file.
namespace argosy::checkpoint {

inline constexpr const char* model_view_name = "model.h5";
/// No view is made above this number of ranks: it grows with the shards, and HDF5 opens them one by one.
inline constexpr int model_view_most_ranks = 512;

class ModelView {
 public:
  /// The bytes of the file; empty above `model_view_most_ranks`. They depend on names, shapes and layout only, and are
  /// kept until those change. Calls HDF5. Throws Error{io} when HDF5 fails; further calls with the same manifest return
  /// no bytes.
  [[nodiscard]] const std::string& of(const Manifest& manifest);

 private:
  std::vector<std::string> unit_names_;
  std::vector<partition::FlatSpace> spaces_;
  std::string bytes_;
};

}  // namespace argosy::checkpoint
