#include "export_app.hpp"
#include "with_torch.hpp"

/// Converts models without LibTorch; export_verified has it.
int main(int argc, char** argv) {
  using namespace argosy;
  app::TorchProgram verified{"export_verified", "--verify, --vocab-trim and --vocab-extend"};
  verified.run_if_needed<app::ExportCommand>(argc, argv);
  return app::run_export(argc, argv, [&]() -> model::Forward { verified.refuse(); });
}
