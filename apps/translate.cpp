#include "decode/translate.hpp"

#include <iostream>
#include <optional>
#include <sstream>

#include "app.hpp"
#include "data/text_pairs.hpp"
#include "data/utf8.hpp"
#include "decode/load.hpp"
#include "kernels/memory.hpp"

namespace {

/// Lines of standard input, which rank 0 alone has, on every rank.
std::vector<std::string> lines_of_input(const argosy::comm::Context& context) {
  std::string text;
  if (context.is_root()) text.assign(std::istreambuf_iterator<char>{std::cin}, {});
  std::istringstream input{argosy::data::replace_invalid_utf8(context.world.broadcast(std::move(text)))};
  std::vector<std::string> lines;
  for (std::string line; std::getline(input, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace argosy;
  return comm::run_main(argc, argv, [&](comm::Context& context) {
    std::string directory, reference;
    decode::SearchOptions search{.beam = 4};
    bool with_scores = false, ema = false;
    CLI::App cli{"Translates standard input line by line; a decoder-only model continues each line."};
    cli.add_option("MODEL", directory, "committed checkpoint directory or soup")->required();
    cli.add_flag("--ema", ema, "translate with the running mean of the weights that optimizer.ema keeps");
    cli.add_option("--beam", search.beam, "hypotheses kept; 1: greedy")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    cli.add_option("--length-penalty", search.length_penalty, "score = log p / length^α")->capture_default_str();
    cli.add_option("--patience", search.patience, "stop at beam · patience finished hypotheses")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    cli.add_option("--max-length", search.max_length, "pieces of a translation, EOS counted")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    cli.add_option("--max-length-factor", search.max_length_factor,
                   "at most this × source pieces + 10; 0: no such bound")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    cli.add_option("--min-length", search.min_length, "pieces before EOS")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    cli.add_flag("--scores", with_scores, "write the score and a tab before each translation");
    cli.add_option("--reference", reference, "translations to compare with: BLEU and chrF in the result line");
    constexpr std::string_view examples =
        "  apps/translate runs/quickstart/soup < in.en > out.fr\n"
        "  mpirun -n 2 apps/translate CKPT --beam 1 --reference test.fr < test.en > out.fr   # greedy, with BLEU and "
        "chrF\n";
    if (!app::parse(cli, argc, argv, examples, context)) return Exit::ok;

    const double begin_s = context.clock.monotonic_s();
    kernels::keep_freed_memory();
    const std::vector<std::string> lines = lines_of_input(context);
    std::optional<std::vector<std::string>> references;
    if (!reference.empty()) {
      references = data::read_lines(context.files, reference, data::InvalidUtf8::replace);
      if (references->size() != lines.size()) {
        throw Error{Fault::data,
                    {.wanted = fmt::format("{} lines, as many as the input has", lines.size()),
                     .got = std::to_string(references->size()),
                     .where = reference}};
      }
    }
    checkpoint::Reader reader{context.files, directory};
    if (ema) reader.use_ema();
    const decode::LoadedModel loaded = decode::load_model(reader, c10::kCPU);
    const double loaded_s = context.clock.monotonic_s();
    const auto translations = decode::translate_lines(context.world, *loaded.model, loaded.tokenizer, lines, search);
    const double end_s = context.clock.monotonic_s();

    boost::json::object figures{{"lines", lines.size()},
                                {"beam", search.beam},
                                {"load_s", loaded_s - begin_s},
                                {"seconds", end_s - loaded_s},
                                {"lines_per_s", static_cast<double>(lines.size()) / std::max(1e-9, end_s - loaded_s)}};
    if (references) {
      const decode::TranslationScores scores = decode::score_translations(translations, *references);
      figures["bleu"] = scores.bleu;
      figures["chrf"] = scores.chrf;
    }
    if (context.is_root()) {
      for (const decode::Translation& translation : translations) {
        if (with_scores) std::cout << fmt::format("{:.6f}\t", translation.score);
        std::cout << translation.text << '\n';
      }
      std::cout.flush();
    }
    context.print_result("translate", std::move(figures));
    return Exit::ok;
  });
}
