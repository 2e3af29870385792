#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "core/error.hpp"

/// RAII for HDF5's C interface, used by the shard files and the view only. This HDF5 is not thread-safe: one thread of
/// the process calls it. Errors are read from HDF5's error stack and thrown.
namespace argosy::checkpoint {

/// Keeps HDF5 from printing its error stack during the lifetime of this object.
class QuietHdf5 {
 public:
  QuietHdf5() {
    // After reading a damaged file HDF5 1.10 can loop in its exit handler. It has nothing to do here: handles close all
    // files.
    [[maybe_unused]] static const herr_t once = H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~QuietHdf5() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  QuietHdf5(const QuietHdf5&) = delete;
  QuietHdf5& operator=(const QuietHdf5&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// HDF5's message about its last failure, in one line.
[[nodiscard]] std::string hdf5_error_text();

/// An identifier and the function that releases it.
class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Handle(hid_t id, Close give_back) : id_(id), close_(give_back) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&&) = delete;
  ~Hdf5Handle() { close(); }
  void reset(hid_t id) noexcept {
    close();
    id_ = id;
  }
  [[nodiscard]] hid_t id() const noexcept { return id_; }
  /// Releases the identifier. False when HDF5 reports a failure. A second call does nothing.
  bool close() noexcept { return id_ < 0 || close_(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  hid_t id_;
  Close close_;
};

}  // namespace argosy::checkpoint
