#include "kernels/plugin.hpp"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "core/error.hpp"
#include "kernels/cuda/entries.hpp"

namespace argosy::kernels {
namespace {

constexpr const char* driver_library = "libcuda.so.1";

std::string last_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown" : text;
}

/// The number of GPUs, from the driver. If it is 0, `problem` says why.
int ask_driver(std::string& problem) {
  void* driver = dlopen(driver_library, RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) {
    problem = last_dl_error();
    return 0;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || get_count == nullptr) {
    problem = last_dl_error();
    return 0;
  }
  int count = 0;
  if (const int code = init(0); code != 0) {
    problem = "cuInit gives CUDA error " + std::to_string(code);
  } else if (const int failed = get_count(&count); failed != 0) {
    problem = "cuDeviceGetCount gives CUDA error " + std::to_string(failed);
  } else if (count == 0) {
    problem = "the driver finds no GPU for this process";
  }
  return problem.empty() ? count : 0;
}

/// Libraries are found by the runpath of the program: next to LibTorch, and in lib/ of the build or install tree.
void* open_library(const char* name, int flags, const char* remedy) {
  void* library = dlopen(name, RTLD_NOW | flags);
  if (library == nullptr) {
    const std::string got = last_dl_error();
    throw_claim(Fault::device, fmt::format("cannot open {}: {}", name, got), "", name, got, remedy);
  }
  return library;
}

/// The driver's answer about one GPU: call(ask, device) uses the function `name`; empty where there is no such GPU.
template <class Ask, class Call>
std::string asked_of(int device_index, const char* name, Call call) {
  std::string problem;
  if (device_index < 0 || device_index >= ask_driver(problem)) return {};
  void* driver = dlopen(driver_library, RTLD_NOW | RTLD_GLOBAL);
  const auto get_device = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto ask = reinterpret_cast<Ask>(dlsym(driver, name));
  int device = 0;
  if (get_device == nullptr || ask == nullptr || get_device(&device, device_index) != 0) return {};
  return call(ask, device);
}

}  // namespace

int gpu_count() noexcept {
  std::string problem;
  return ask_driver(problem);
}

std::string gpu_name(int device_index) {
  using Ask = int (*)(char*, int, int);
  return asked_of<Ask>(device_index, "cuDeviceGetName", [](Ask ask, int device) {
    char name[256] = "";
    return ask(name, sizeof name, device) == 0 ? std::string(name) : std::string();
  });
}

std::string gpu_identity(int device_index) {
  using Ask = int (*)(char*, int);
  return asked_of<Ask>(device_index, "cuDeviceGetUuid", [](Ask ask, int device) {
    char uuid[16] = "";
    return ask(uuid, device) == 0 ? std::string(uuid, sizeof uuid) : std::string();
  });
}

void* plugin_entry(const char* name) {
  void* plugin =
      open_library("libargosy_cuda.so", RTLD_LOCAL, "build Argosy on a machine with nvcc, or set device to cpu");
  void* entry = dlsym(plugin, name);
  if (entry == nullptr) {
    throw Error{Fault::device,
                {.wanted = "libargosy_cuda.so of this build",
                 .got = last_dl_error(),
                 .remedy = "build and install Argosy again"}};
  }
  return entry;
}

void open_cuda_plugin(int device_index) {
  static std::mutex mutex;
  static CudaStart start = nullptr;
  const std::lock_guard lock{mutex};
  std::string why;
  const int count = ask_driver(why);
  if (count > 0 && (device_index < 0 || device_index >= count))
    why = fmt::format("number {} is wanted, and the driver offers {} to this process", device_index, count);
  if (!why.empty()) {
    throw_claim(Fault::device, fmt::format("there is no usable GPU: {}", why), "", "an NVIDIA GPU and its driver", why,
                "run on a GPU node, or set device to cpu");
  }
  if (start == nullptr) {
    // Opened globally, so that the plug-in finds its symbols. It is not linked, because CPU nodes have no CUDA
    // libraries.
    open_library("libtorch_cuda.so", RTLD_GLOBAL, "install it with scripts/setup --cuda, or set device to cpu");
    start = reinterpret_cast<CudaStart>(plugin_entry(cuda_start_name));
  }
  char problem[256] = "";
  if (start(device_index, problem, sizeof problem) != 0)
    throw_claim(Fault::device, fmt::format("GPU {} does not run Argosy's code: {}", device_index, problem),
                "GPU " + std::to_string(device_index), "a GPU that runs Argosy's code", problem,
                "update the driver, rebuild for this GPU (CMAKE_CUDA_ARCHITECTURES), or set device to cpu");
  try {
    // Sums of products have one order, and are never rounded to bf16 on the way.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    at::globalContext().setAllowBF16ReductionCuBLAS(false, /*allow_splitk=*/true);
    at::globalContext().lazyInitDevice(at::kCUDA);  // before that, its allocator answers no question about a device
  } catch (const c10::Error& error) {
    throw_claim(Fault::device,
                fmt::format("LibTorch cannot use GPU {}: {}", device_index, error.what_without_backtrace()),
                "GPU " + std::to_string(device_index), "a GPU that LibTorch can use", error.what_without_backtrace(),
                "update the driver, or set device to cpu");
  }
}

bool use_gpu(std::string_view device, int device_index) {
  if (device == "cpu" || (device == "auto" && gpu_count() == 0)) return false;
  ARGOSY_CHECK(device == "cuda" || device == "auto", "device {}", device);
  open_cuda_plugin(device_index);
  return true;
}

}  // namespace argosy::kernels
