#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "kernels/gemm.hpp"
#include "kernels/tensor_memory.hpp"
#include "model/model.hpp"
#include "plan/run_config.hpp"
#include "plan/time_model.hpp"
#include "telemetry/flops.hpp"
#include "unit/model/support.hpp"

// Times one micro-step (forward and backward pass, no optimizer) of the model of a configuration and, in turns with it,
// only the matrix products of that micro-step: the GEMM floor. scripts/bench/train and scripts/bench/growth run it.
namespace {

using namespace argosy;
using Clock = std::chrono::steady_clock;

constexpr const char* usage_text =
    "usage: micro_step CONFIG ROWS SOURCE TARGET [REPEATS] [THREADS]\n"
    "CONFIG: of apps/train; model (or tokenizer_training) says vocab_size. ROWS of SOURCE and TARGET tokens are a\n"
    "micro-batch; SOURCE is 0 for a language model. Defaults: 20 repeats, 1 thread. It prints the least time of each\n"
    "visit, the medians of the micro-step and of its matrix products, and a result line.\n\n"
    "  build/tests/bench/micro_step configs/quickstart.json 35 13 15\n";

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// The matrix products of a micro-step, on the weights and gradients of a model and on random activations. Weights are
/// packed beforehand, which is not part of the floor.
class Floor {
 public:
  /// Of all matrices that the visits of `model` multiply by `source` and `target` tokens.
  Floor(model::Model& model, std::int64_t source, std::int64_t target) {
    for (const model::Visit& visit : model.visits()) {
      if (visit.kind == spec::VisitKind::source || visit.kind == spec::VisitKind::target) continue;
      const bool encoder = visit.kind == spec::VisitKind::encoder_block, head = visit.kind == spec::VisitKind::head;
      for (model::Parameter& parameter : model.units()[visit.units[0]].parameters()) {
        if (parameter.shape.size() != 2) continue;
        const bool reads_memory = parameter.role == spec::Role::attention_key_value;
        add(parameter, encoder || reads_memory ? source : target,
            head ? model.architecture().vocabulary.pieces : parameter.shape[0]);
      }
    }
  }

  void run() {
    for (Layer& layer : layers_) {
      kernels::gemm(layer.x, layer.to_y, layer.y);
      kernels::gemm(layer.dy, layer.to_dx, layer.dx);
      kernels::gemm(layer.dy.t(), layer.x, layer.gradient);
    }
  }
  [[nodiscard]] std::size_t products() const { return 3 * layers_.size(); }
  [[nodiscard]] double flops() const {
    double sum = 0;
    for (const Layer& layer : layers_)
      sum += 6.0 * static_cast<double>(layer.x.size(0)) * static_cast<double>(layer.weight.numel());
    return sum;
  }

 private:
  struct Layer {
    at::Tensor weight, gradient, x, y, dx, dy;
    kernels::PackedMatrix to_y, to_dx;
  };

  void add(const model::Parameter& parameter, std::int64_t tokens, std::int64_t out) {
    const std::int64_t in = parameter.shape[1];
    Layer layer;
    layer.weight = parameter.weight.narrow(0, 0, out);
    layer.gradient = parameter.gradient.narrow(0, 0, out);
    const at::ScalarType type = layer.weight.scalar_type();
    layer.to_y = kernels::pack_matrix(layer.weight.t());
    layer.to_dx = kernels::pack_matrix(layer.weight);
    layer.x = scratch("x", tokens, in, type);
    layer.dy = scratch("dy", tokens, out, type);
    layer.y = scratch("y", tokens, out, type);
    layer.dx = scratch("dx", tokens, in, type);
    layers_.push_back(std::move(layer));
  }
  /// Layers of the same shape share memory for activations.
  at::Tensor scratch(const char* use, std::int64_t rows, std::int64_t columns, at::ScalarType type) {
    at::Tensor& tensor = scratch_[fmt::format("{} {} {} {}", use, rows, columns, static_cast<int>(type))];
    if (!tensor.defined()) tensor = at::randn({rows, columns}, at::kFloat).to(type);
    return tensor;
  }

  std::vector<Layer> layers_;
  std::map<std::string, at::Tensor> scratch_;
};

class MicroStep {
 public:
  MicroStep(model::Model& model, const plan::RunConfig& config, std::int64_t rows, std::int64_t source,
            std::int64_t target)
      : model_(model),
        label_smoothing_(plan::label_smoothing_of(config)),
        loss_(config.loss),
        forward_(model.visits().size(), 1e9),
        backward_(model.visits().size(), 1e9) {
    const auto ids = [&](std::int64_t width) {
      return at::randint(0, model.architecture().vocabulary.pieces, {rows, width}, at::kLong);
    };
    if (source > 0) {
      inputs_.source = ids(source);
      inputs_.source_lengths = at::full({rows}, source, at::kLong);
    }
    inputs_.target_in = ids(target);
    inputs_.target_labels = ids(target);
    inputs_.target_lengths = at::full({rows}, target, at::kLong);
  }

  void run(std::int64_t number) {
    for (model::Unit& unit : model_.units()) unit.expect_fresh_gradients();
    model::Pass pass;
    pass.training = true;
    pass.step = number;
    pass.loss = {.label_smoothing = label_smoothing_,
                 .z = loss_.z,
                 .error_norm_truncation = loss_.error_norm_truncation,
                 .chunk_bytes = loss_.chunk_bytes};
    pass.loss_scale = 1.0 / static_cast<double>(inputs_.target_labels.numel());
    std::vector<model::State> before, after;
    const auto& visits = model_.visits();
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const auto begin = Clock::now();
      before.push_back(test::detached(i == 0 ? model::State{} : after.back()));
      after.push_back(visits[i].forward(before.back(), inputs_, pass));
      forward_[i] = std::min(forward_[i], seconds_since(begin));
    }
    at::Tensor dx, dmemory;
    for (std::size_t i = visits.size(); i-- > 0;) {
      const auto begin = Clock::now();
      test::back_up(visits[i], before[i], after[i], dx, dmemory);
      backward_[i] = std::min(backward_[i], seconds_since(begin));
    }
  }
  void print_visits() const {
    for (std::size_t i = 0; i < model_.visits().size(); ++i)
      fmt::print("{:<10} forward {:7.2f} ms  backward {:7.2f} ms\n", model_.visits()[i].name, forward_[i] * 1e3,
                 backward_[i] * 1e3);
  }

 private:
  model::Model& model_;
  double label_smoothing_;
  plan::LossConfig loss_;
  model::Inputs inputs_;
  std::vector<double> forward_, backward_;  // least seconds of each visit
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// A whole number from `least` on. Throws Error{usage}.
std::int64_t number_of(const char* word, const char* name, std::int64_t least) {
  char* end = nullptr;
  const std::int64_t value = std::strtoll(word, &end, 10);
  if (end == word || *end != '\0' || value < least)
    throw Error{Fault::usage,
                {.sentence = fmt::format("micro_step: {} must be {} or more, got {}", name, least, word)}};
  return value;
}

int run(int argc, char** argv) {
  if (argc < 5 || argc > 7) {
    fmt::print(stderr, "{}", usage_text);
    return 2;
  }
  const auto rows = number_of(argv[2], "ROWS", 1), source = number_of(argv[3], "SOURCE", 0),
             target = number_of(argv[4], "TARGET", 1);
  const std::int64_t repeats = argc > 5 ? number_of(argv[5], "REPEATS", 1) : 20;
  const auto threads = narrow<int>(argc > 6 ? number_of(argv[6], "THREADS", 1) : 1);
  const Files files = Files::system();
  const auto config =
      config::from_document<plan::RunConfig>(config::Document::parse(config::read_source(files, argv[1]), argv[1]));
  const std::int64_t pieces =
      config.model.vocab_size.value_or(config.data.tokenizer_training ? config.data.tokenizer_training->vocab_size : 0);
  if (pieces == 0) throw Error{Fault::config, {.sentence = fmt::format("{} has no model.vocab_size", argv[1])}};
  const spec::Architecture shape = resolve(config.model, pieces);
  if ((source > 0) != (shape.type == spec::ModelType::encoder_decoder))
    throw Error{Fault::usage, {.sentence = "micro_step: SOURCE is 0 for a language model, and only for one"}};
  kernels::keep_tensor_memory();
  at::set_num_threads(threads);
  const test::BoundModel bound(shape, config.precision.mode == plan::PrecisionMode::fp32 ? at::kFloat : at::kBFloat16);
  MicroStep step(*bound.model, config, rows, source, target);
  Floor floor(*bound.model, rows * source, rows * target);

  std::vector<double> step_s, floor_s;
  long faults = 0;
  constexpr std::int64_t warm_up = 3;
  for (std::int64_t i = 0; i < warm_up + repeats; ++i) {
    const long faults_before = page_faults();
    auto begin = Clock::now();
    step.run(i);
    const double step_seconds = seconds_since(begin);
    faults = page_faults() - faults_before;
    begin = Clock::now();
    floor.run();
    if (i < warm_up) continue;
    step_s.push_back(step_seconds);
    floor_s.push_back(seconds_since(begin));
  }
  telemetry::Work work;
  for (std::int64_t row = 0; row < rows; ++row) work.add_row(source, target, shape.window);
  const double flops = telemetry::flops_of(plan::flop_shape(shape), work).causal;
  step.print_visits();
  const double step_ms = median(step_s) * 1e3, floor_ms = median(floor_s) * 1e3;
  fmt::print("micro-step {:.2f} ms, its {} matrix products {:.2f} ms ({:.1f} GF/s), share {:.2f}, {} page faults\n",
             step_ms, floor.products(), floor_ms, floor.flops() / floor_ms * 1e-6, floor_ms / step_ms, faults);
  const auto [least, most] = std::minmax_element(step_s.begin(), step_s.end());
  const boost::json::object figures{{"micro_step_ms", step_ms},
                                    {"least_ms", *least * 1e3},
                                    {"most_ms", *most * 1e3},
                                    {"floor_ms", floor_ms},
                                    {"floor_share", floor_ms / step_ms},
                                    {"floor_gflops_per_s", floor.flops() / floor_ms * 1e-6},
                                    {"products", floor.products()},
                                    {"gflop", flops * 1e-9},
                                    {"page_faults", faults}};
  fmt::print("result {}\n", boost::json::serialize(figures));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const argosy::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(argosy::exit_code(error.fault()));
  }
}
