#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "core/error.hpp"

/// RAII over HDF5's C interface, for the shard files alone. HDF5 here is not thread-safe: one thread of the process
/// uses it. Errors are read from HDF5's stack and thrown; nothing is printed.
namespace argosy::checkpoint {

/// Keeps HDF5 from printing its error stack while it lives.
class QuietHdf5 {
 public:
  QuietHdf5() {
    // After it has met a damaged file HDF5 1.10 can loop in its exit handler; every file here is closed by its handle.
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

/// What HDF5 says about its last failure, in one line.
[[nodiscard]] std::string hdf5_error_text();

/// An identifier and the call that gives it back.
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
  /// False when HDF5 reports a failure. The second call does nothing.
  bool close() noexcept { return id_ < 0 || close_(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  hid_t id_;
  Close close_;
};

}  // namespace argosy::checkpoint
