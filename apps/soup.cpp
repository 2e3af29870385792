#include "soup_app.hpp"
#include "with_torch.hpp"

/// Averages checkpoints without LibTorch; soup_validated has it, for evaluation.
int main(int argc, char** argv) {
  using namespace argosy;
  app::TorchProgram validated{"soup_validated", "--validate"};
  validated.run_if_needed<app::SoupCommand>(argc, argv);
  return app::run_soup(argc, argv, [&](comm::Context&, const config::Options&, const std::string&) -> soup::Evaluator {
    validated.refuse();
  });
}
