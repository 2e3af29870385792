#pragma once

#include <string>

#include "checkpoint/manifest.hpp"

/// model.h5: every parameter of a checkpoint in its own shape, as HDF5 virtual datasets over the shards beside it, for
/// people with h5ls, h5dump or h5py. It holds no weights, the manifest does not vouch for it and nothing here reads it.
/// Shards that are missing read as NaN. HDF5 makes it in memory; it is written like any other file.
namespace argosy::checkpoint {

inline constexpr const char* model_view_name = "model.h5";
/// HDF5 opens the shards one by one to read a parameter, and the view grows with them: above this there is none.
inline constexpr int model_view_most_ranks = 512;

class ModelView {
 public:
  /// The file's bytes; empty above `model_view_most_ranks`. They follow from names, shapes and layout alone: made anew
  /// where those differ from the last manifest's. Calls HDF5, one thread. Throws Error{io} when HDF5 fails, then gives
  /// nothing for the same manifest.
  [[nodiscard]] const std::string& of(const Manifest& manifest);

 private:
  std::vector<std::string> unit_names_;
  std::vector<partition::FlatSpace> spaces_;
  std::string bytes_;
};

}  // namespace argosy::checkpoint
