#include <fmt/ranges.h>

#include "app.hpp"
#include "config/describe.hpp"
#include "interchange/formats.hpp"
#include "interchange/source.hpp"

int main(int argc, char** argv) {
  using namespace argosy;
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    std::string from, format = "ct2", quantization = "float32", out;
    std::uint64_t max_shard_bytes = interchange::ExportOptions{}.max_shard_bytes;
    bool ema = false;
    std::vector<std::string> descriptions;
    for (const interchange::Format& known : interchange::formats())
      descriptions.push_back(fmt::format("{}: {}", known.name, known.description));
    CLI::App cli{"Converts a model between Argosy's checkpoints and the formats of other programs."};
    cli.add_option("--from,MODEL", from,
                   "directory of a committed checkpoint, of a soup, or of a Hugging Face model (hf:DIR: that alone)")
        ->required();
    cli.add_option("--format", format, fmt::format("{}", fmt::join(descriptions, "; ")))->capture_default_str();
    cli.add_option("--out", out, "folder to create; never overwritten")->required();
    cli.add_option("--quantization", quantization,
                   "element type of the weights; ct2 alone: int8, int16, and int8_float16 for int8 matrices "
                   "with all else in float16")
        ->check(CLI::IsMember(
            {"float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"}))
        ->capture_default_str();
    cli.add_option("--max-shard-size", max_shard_bytes,
                   "hf: weights beyond this size go into several files; a number of bytes, or 500MB, 2GB")
        ->transform(CLI::AsSizeValue(true))
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    cli.add_flag("--ema", ema, "export the running means (optimizer.ema) instead of the weights");
    constexpr std::string_view examples =
        "  apps/export runs/quickstart/soup --format ct2 --out model      # ctranslate2.Translator(\"model\") loads "
        "it\n"
        "  apps/export CKPT --format hf --quantization bfloat16 --out model   # AutoModelForSeq2SeqLM or "
        "AutoModelForCausalLM\n"
        "  mpiexec -n 4 apps/export CKPT --quantization int8 --out model8  # a quarter of the size, written by 4 "
        "ranks\n"
        "  apps/export --from hf:DIR --format argosy --out CKPT             # weights of others, to translate or "
        "fine-tune\n";
    if (!app::parse(cli, argc, argv, examples, context)) return Exit::ok;

    const interchange::Format& chosen = interchange::format_named(format);
    const model::StoredModel source = interchange::open_source(context, from, ema);
    interchange::Quantization type{};
    boost::describe::enum_from_string(quantization.c_str(), type);
    const interchange::ExportReport report = chosen.write(context, source, out, {type, max_shard_bytes});
    context.log.info("{}: {} parameters, {:.1f} MB, {:.1f} s", report.folder.string(), report.parameters,
                     static_cast<double>(report.bytes) / 1e6, report.seconds);
    context.print_result("export", {{"out", report.folder.string()},
                                    {"format", format},
                                    {"quantization", quantization},
                                    {"step", source.step},
                                    {"parameters", report.parameters},
                                    {"bytes", report.bytes},
                                    {"seconds", report.seconds}});
    return Exit::ok;
  });
}
