#include "decode/forward.hpp"
#include "export_app.hpp"

/// apps/export with LibTorch, for --verify, --vocab-trim and --vocab-extend.
int main(int argc, char** argv) {
  return argosy::app::run_export(argc, argv, [] { return argosy::model::Forward{argosy::decode::forward}; });
}
