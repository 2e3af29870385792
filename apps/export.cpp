#include "app.hpp"
#include "checkpoint/load.hpp"
#include "config/describe.hpp"
#include "export/ctranslate2.hpp"

int main(int argc, char** argv) {
  using namespace argosy;
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    std::string checkpoint, format = "ct2", quantization = "float32", out;
    bool ema = false;
    CLI::App cli{"Turns a checkpoint or soup into a model that other programs load."};
    cli.add_option("CKPT", checkpoint, "committed checkpoint directory or soup")->required();
    cli.add_option("--format", format, "ct2: a CTranslate2 folder")
        ->check(CLI::IsMember({"ct2"}))
        ->capture_default_str();
    cli.add_option("--out", out, "folder to create; must not exist")->required();
    cli.add_option("--quantization", quantization, "element type of the weights")
        ->check(CLI::IsMember({"float32", "float16", "bfloat16", "int8"}))
        ->capture_default_str();
    cli.add_flag("--ema", ema, "export the running mean of the weights that optimizer.ema keeps");
    constexpr std::string_view examples =
        "  apps/export runs/quickstart/soup --format ct2 --out model      # ctranslate2.Translator(\"model\") loads "
        "it\n"
        "  mpirun -n 4 apps/export CKPT --quantization int8 --out model8  # a quarter of the size, written by four "
        "ranks\n";
    if (!app::parse(cli, argc, argv, examples, context)) return Exit::ok;

    checkpoint::Reader reader = checkpoint::open_on_all(context, checkpoint);
    if (ema) reader.use_ema();
    exports::Quantization type{};
    boost::describe::enum_from_string(quantization.c_str(), type);
    const exports::ExportReport report = exports::export_ctranslate2(context, reader, out, type);
    context.log.info("{}: {} parameters, {:.1f} MB, {:.1f} s", report.folder.string(), report.parameters,
                     static_cast<double>(report.bytes) / 1e6, report.seconds);
    context.print_result("export", {{"out", report.folder.string()},
                                    {"format", format},
                                    {"quantization", quantization},
                                    {"step", reader.step()},
                                    {"parameters", report.parameters},
                                    {"bytes", report.bytes},
                                    {"seconds", report.seconds}});
    return Exit::ok;
  });
}
