#include "decode/translate.hpp"

#include <algorithm>
#include <boost/json/value_from.hpp>
#include <optional>

#include "app.hpp"
#include "checkpoint/load.hpp"
#include "decode/load.hpp"
#include "kernels/memory.hpp"

int main(int argc, char** argv) {
  using namespace argosy;
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    std::string directory;
    decode::TextFiles files;
    decode::SearchOptions search{.beam = 4};
    bool ema = false, int8 = false;
    CLI::App cli{"Translates a text line by line. A decoder-only model continues each line."};
    cli.add_option("MODEL", directory, "directory of a committed checkpoint or of a soup")->required();
    cli.add_option("--input", files.input,
                   "text file; default: standard input, of which rank 0 translates each line when it arrives");
    cli.add_option("--output", files.output,
                   "file for the translations, created or replaced when all are done; default: standard output");
    cli.add_flag("--ema", ema, "translate with the running means (optimizer.ema) instead of the weights");
    cli.add_option("--beam", search.beam, "number of hypotheses; 1: greedy")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    cli.add_option("--length-penalty", search.length_penalty,
                   "divide the log-probability of a translation by its length to this power")
        ->capture_default_str();
    cli.add_option("--patience", search.patience, "stop when beam · patience hypotheses are finished")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    cli.add_option("--max-length", search.max_length, "most pieces in a translation, EOS included")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    cli.add_option("--max-length-factor", search.max_length_factor,
                   "a translation has at most this number times the source's pieces, plus 10; 0: no such limit")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    cli.add_option("--min-length", search.min_length, "fewest pieces before EOS")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    cli.add_flag("--int8", int8,
                 "round the weights of matrix products, and the values they are multiplied by, to 8 bits: faster, with "
                 "nearly the same translations");
    cli.add_flag("--scores", files.with_scores, "write the score and a tab before each translation");
    cli.add_option("--reference", files.reference,
                   "reference translations: adds BLEU, chrF and TER to the result line");
    constexpr std::string_view examples =
        "  echo \"Click the button.\" | apps/translate runs/quickstart/soup                     one line, to the "
        "terminal\n"
        "  mpiexec -n 2 apps/translate CKPT --input test.en --output out.fr --reference test.fr  with scores\n";
    if (!app::parse(cli, argc, argv, examples, context)) return Exit::ok;

    const double begin_s = context.clock.monotonic_s();
    kernels::keep_freed_memory();
    decode::TextTranslation text{context, files};
    checkpoint::Reader reader = checkpoint::open_on_all(context, directory);
    if (ema) reader.use_ema();
    std::optional<decode::LoadedModel> loaded;
    std::optional<model::Inference> inference;
    comm::agree(context.world, [&] {
      loaded = decode::load_model(reader, c10::kCPU);
      inference.emplace(*loaded->model, int8 ? kernels::PackedType::int8 : kernels::PackedType::same);
    });
    const double loaded_s = context.clock.monotonic_s();
    const decode::TextReport report = text.run([&](const std::vector<std::string>& lines, std::uint64_t first) {
      return decode::translate_lines(context.world, *inference, loaded->tokenizer, lines, search, first);
    });
    const double seconds = context.clock.monotonic_s() - loaded_s;

    boost::json::object figures{{"step", reader.step()},
                                {"lines", report.lines},
                                {"beam", search.beam},
                                {"precision", int8 ? "int8" : "fp32"},
                                {"load_s", loaded_s - begin_s},
                                {"seconds", seconds},
                                {"lines_per_s", static_cast<double>(report.lines) / std::max(1e-9, seconds)}};
    if (report.scores) {
      figures["bleu"] = report.scores->bleu;
      figures["chrf"] = report.scores->chrf;
      figures["ter"] = report.scores->ter;
      figures["signatures"] = boost::json::value_from(decode::score_signatures());
    }
    context.print_result("translate", std::move(figures));
    return Exit::ok;
  });
}
