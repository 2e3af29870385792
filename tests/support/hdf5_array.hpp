#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file.hpp"

namespace argosy::test {

/// A dataset of an HDF5 file, read with HDF5's own interface.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

inline Array read_array(const Path& path, const std::string& name) {
  Array array;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  const hid_t space = H5Dget_space(dataset);
  std::vector<hsize_t> shape(static_cast<std::size_t>(std::max(H5Sget_simple_extent_ndims(space), 0)));
  H5Sget_simple_extent_dims(space, shape.data(), nullptr);
  array.shape.assign(shape.begin(), shape.end());
  array.values.assign(static_cast<std::size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space), 0)), -7);
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.data()), 0) << name;
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  return array;
}

}  // namespace argosy::test
