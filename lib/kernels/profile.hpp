#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

/// Where the time of a computation goes, by operation of this module. On a GPU it is that between two events of the
/// stream, before and behind the operation.
namespace argosy::kernels {

class Profile {
 public:
  struct Operation {
    std::int64_t calls = 0;
    double seconds = 0;  // without the operations that it calls
    double flops = 0;    // of matrix products
    double bytes = 0;    // of the tensors that are passed to it and returned
  };

  /// While it lives, the operations of this thread are added to `profile`. On a GPU, its end waits for them, and the
  /// operations of all threads count: LibTorch has a thread for backward passes there, which runs while this one waits.
  class Recording {
   public:
    explicit Recording(Profile& profile, c10::Device device = c10::kCPU);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    Profile& profile_;
    Profile* before_;
  };

  /// One call of an operation, while it lives. Costs nothing unless there is a recording.
  class Call {
   public:
    explicit Call(const char* name);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    void add_flops(double count) { flops_ += count; }
    void add(const at::Tensor& tensor) {
      if (profile_ != nullptr && tensor.defined()) bytes_ += static_cast<double>(tensor.nbytes());
    }
    void add(const std::optional<at::Tensor>& tensor) {
      if (tensor) add(*tensor);
    }
    template <class... T>
    void add(const std::tuple<T...>& tensors) {
      std::apply([this](const T&... tensor) { (add(tensor), ...); }, tensors);
    }
    template <class T>
    void add(const T& /*not a tensor*/) {}

   private:
    const char* name_;
    Profile* profile_;
    double outer_s_ = 0, flops_ = 0, bytes_ = 0;
    std::chrono::steady_clock::time_point begin_;
    std::size_t span_ = 0;  // on a GPU
  };

  /// By name.
  [[nodiscard]] const std::map<std::string, Operation>& operations() const noexcept { return operations_; }

 private:
  /// Calls on a GPU whose times are not known yet.
  struct Spans;

  static Profile*& current();
  void add(const char* name, double seconds, double flops, double bytes);

  std::map<std::string, Operation> operations_;
  double inner_s_ = 0;  // of the calls made by the one that runs
  std::shared_ptr<Spans> spans_;
};

}  // namespace argosy::kernels
