#include "model/segment.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "core/error.hpp"

namespace argosy::model {

namespace {

struct Segment : torch::autograd::Node {
  std::function<Tensors(const Tensors&)> backward;

  Tensors apply(Tensors&& gradients) override {
    ARGOSY_CHECK(backward != nullptr, "the backward pass of a segment runs only once");
    const auto run = std::exchange(backward, nullptr);
    return run(gradients);
  }
  void release_variables() override { backward = nullptr; }
};

}  // namespace

void attach(const Tensors& outputs, const Tensors& inputs, std::function<Tensors(const Tensors&)> backward) {
  const std::shared_ptr<Segment> node(new Segment, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  node->backward = std::move(backward);
  for (const at::Tensor& output : outputs) torch::autograd::set_history(output, node);
}

bool recording() { return at::GradMode::is_enabled(); }

}  // namespace argosy::model
