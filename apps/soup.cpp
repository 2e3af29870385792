#include "soup/soup.hpp"

#include "app.hpp"

namespace {

constexpr std::string_view examples =
    "  mpirun apps/soup runs/mt/checkpoints/*                 the mean of all checkpoints of a run, as ./soup\n"
    "  mpirun -n 4 apps/soup --out best a/000009000 a/000010000   of two of them, by 4 ranks";

}  // namespace

int main(int argc, char** argv) {
  return argosy::comm::run_main(argc, argv, [&](argosy::comm::Context& context) {
    argosy::soup::SoupConfig config;
    CLI::App app{"Averages checkpoints in bounded memory: uniform mean of the weights, summed in fp64, divided once."};
    app.add_option("CKPT", config.inputs, "committed checkpoint directories, at least two")->required();
    app.add_option("--out", config.output, "directory to make; never overwritten")->capture_default_str();
    app.add_flag("--allow-cross-run", config.allow_cross_run, "take checkpoints of several runs");
    app.add_flag("--allow-soup", config.allow_soup, "take soups as ingredients");
    if (!argosy::app::parse(app, argc, argv, examples, context)) return argosy::Exit::ok;
    const argosy::soup::SoupReport report = argosy::soup::make_soup(context, config);
    context.print_result("soup", argosy::soup::figures(report));
    return argosy::Exit::ok;
  });
}
