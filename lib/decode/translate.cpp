#include "decode/translate.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/staged.hpp"
#include "core/utf8.hpp"
#include "decode/scores.hpp"
#include "decode/ter.hpp"

namespace argosy::decode {
namespace {

using Lines = std::vector<std::string>;

/// Reads a text from its beginning to its end. LF ends a line, a CR before it is dropped, a last line without LF is a
/// line. A pipe or terminal gives what has arrived.
class LineSource {
 public:
  LineSource(File file, std::size_t part_bytes) : file_(std::move(file)), part_bytes_(part_bytes) {
    const FileStat facts = file_.stat();
    if (facts.is_directory) throw_error(Fault::data, file_.path().string(), "a text file", "a folder");
    if (facts.is_regular) size_bytes_ = facts.size_bytes;
  }

  /// The next lines, at most `most` of them and about a part; none at the end. Those of a pipe or terminal are not kept
  /// waiting for a part to be full.
  Lines next(std::size_t most) {
    Lines lines;
    for (std::size_t size_bytes = 0; lines.size() < most && size_bytes < part_bytes_;) {
      const auto end = text_.find('\n', at_);
      if (end != std::string::npos) {
        lines.push_back(text_.substr(at_, end - at_));
      } else if (!lines.empty() && is_quiet()) {
        break;
      } else if (fill()) {
        continue;
      } else if (at_ < text_.size()) {
        lines.push_back(text_.substr(at_));
      } else {
        break;
      }
      at_ = end != std::string::npos ? end + 1 : text_.size();
      size_bytes += lines.back().size() + 1;
      ++count_;
      if (lines.back().ends_with('\r')) lines.back().pop_back();
    }
    return lines;
  }

  /// Whether there are no more lines.
  [[nodiscard]] bool is_at_end() {
    while (at_ == text_.size()) {
      if (!fill()) return true;
    }
    return false;
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }                           // of lines given
  [[nodiscard]] std::optional<std::uint64_t> size_bytes() const { return size_bytes_; }  // of a file
  [[nodiscard]] std::uint64_t done_bytes() const { return read_bytes_ - (text_.size() - at_); }
  [[nodiscard]] std::string name() const { return file_.path().string(); }

 private:
  /// Whether a pipe or terminal has nothing more now. The time lets a program that writes fast fill its pipe again.
  [[nodiscard]] bool is_quiet() const { return !size_bytes_ && !ended_ && !file_.is_ready(5); }

  /// False at the end. The end is noted: a terminal would report it only once.
  bool fill() {
    if (ended_) return false;
    text_.erase(0, std::exchange(at_, 0));
    const std::size_t had = text_.size();
    if (had > part_bytes_)
      throw_error(Fault::data, fmt::format("{} line {}", name(), count_ + 1),
                  fmt::format("a line of at most {} bytes", part_bytes_), "a longer one",
                  "check that this is a text file, or split the line");
    text_.resize(had + std::min<std::size_t>(part_bytes_, 1 << 20));
    const MutableBytes room = as_writable_bytes(std::span{text_}.subspan(had));
    const std::size_t got = size_bytes_ ? file_.read(room) : file_.read_some(room);
    ended_ = size_bytes_ ? got < room.size() : got == 0;
    text_.resize(had + got);
    read_bytes_ += got;
    return text_.size() > had;
  }

  File file_;
  std::size_t part_bytes_;
  std::optional<std::uint64_t> size_bytes_;
  std::string text_;  // read and not given yet: from at_ on
  std::size_t at_ = 0;
  std::uint64_t count_ = 0, read_bytes_ = 0;
  bool ended_ = false;
};

/// The number of lines of a file; nullopt for an input that can be read only once.
std::optional<std::uint64_t> lines_in(const Files& files, const std::optional<Path>& path) {
  const auto facts = path ? files.stat(*path) : std::nullopt;
  if (!facts || !facts->is_regular) return std::nullopt;
  File file = files.open(*path);
  std::uint64_t lines = 0;
  char last = '\n';
  std::string part(1 << 20, '\0');
  for (std::size_t size = 0; (size = file.read(as_writable_bytes(std::span{part}))) > 0; last = part[size - 1])
    lines +=
        static_cast<std::uint64_t>(std::count(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(size), '\n'));
  return lines + (last == '\n' ? 0 : 1);
}

/// nullopt: the number is not known yet.
[[noreturn]] void throw_unequal(std::optional<std::uint64_t> lines, std::optional<std::uint64_t> references,
                                const std::string& where) {
  throw_error(Fault::data, where,
              lines ? fmt::format("{} lines, as many as the input has", *lines) : "as many lines as the input has",
              references ? std::to_string(*references) : "more");
}

/// Counts of all scores. Each rank counts a share of the lines.
struct ScoreCounts {
  BleuCounts bleu;
  ChrfCounts chrf;
  TerCounts ter;

  /// Those of this rank; the same arguments on every rank.
  void add(const comm::Communicator& world, const std::vector<Translation>& translations, const Lines& references) {
    ARGOSY_CHECK(translations.size() == references.size(), "{} and {}", translations.size(), references.size());
    const auto size = static_cast<std::size_t>(world.size());
    for (auto i = static_cast<std::size_t>(world.rank()); i < translations.size(); i += size) {
      bleu.add(translations[i].text, references[i]);
      chrf.add(translations[i].text, references[i]);
      ter.add(translations[i].text, references[i]);
    }
  }
  /// Of the lines of all ranks. **Collective**; call it once.
  [[nodiscard]] TranslationScores scores(const comm::Communicator& world) {
    for (const std::span<std::int64_t> each : {bleu.counts(), chrf.counts(), ter.counts()}) world.all_reduce(each);
    return {bleu.score(), chrf.score(), ter.score()};
  }
};

void refuse_same(const Files& files, const Path& output, const std::optional<Path>& other, const char* what) {
  const auto there = other ? files.stat(*other) : std::nullopt;
  const auto facts = files.stat(output);
  if (!there || !facts || facts->device != there->device || facts->inode != there->inode) return;
  throw_claim(Fault::usage, fmt::format("{} is both the {} and the output", output.string(), what), output.string(),
              "an output that is not also read", fmt::format("the {}", what), "give another --output");
}

}  // namespace

std::map<std::string, std::string> score_signatures() {
  return {{"bleu", signature_of(BleuCounts::settings)},
          {"chrf", signature_of(ChrfCounts::settings)},
          {"ter", signature_of(TerCounts::settings)}};
}

TranslationScores score_translations(const comm::Communicator& world, const std::vector<Translation>& translations,
                                     const std::vector<std::string>& references) {
  ScoreCounts counts;
  counts.add(world, translations, references);
  return counts.scores(world);
}

struct TextTranslation::Impl {
  Impl(comm::Context& of, TextFiles named) : context(of), files(std::move(named)) {
    comm::at_root(context.world, [&] { open(); });
    share();
  }

  void open() {
    if (files.output) {
      refuse_same(context.files, *files.output, files.input, "input");
      refuse_same(context.files, *files.output, files.reference, "reference");
      refuse_same(context.files, *files.output, files.targets, "text of the targets");
    }
    input.emplace(files.input ? context.files.stream(*files.input) : context.files.standard_input(), files.part_bytes);
    const auto open_next_to_input = [&](std::optional<LineSource>& source, const std::optional<Path>& path) {
      if (!path) return;
      source.emplace(context.files.stream(*path), files.part_bytes);
      const auto wanted = lines_in(context.files, files.input), got = lines_in(context.files, path);
      if (wanted && got && *wanted != *got) throw_unequal(wanted, got, source->name());
    };
    open_next_to_input(references, files.reference);
    open_next_to_input(targets, files.targets);
    if (files.output) output.emplace(context.files, *files.output);
  }

  /// Reads the next part on rank 0, and hands it to all.
  void share() {
    comm::at_root(context.world, [&] {
      const std::uint64_t before = input->count();
      part = input->next(std::string::npos);
      repair(part, *input, before);
      if (references) reference_part = lines_next_to_input(*references);
      for (std::string& line : reference_part) line = replace_invalid_utf8(line);
      if (references && input->count() == 0)
        throw_error(Fault::data, input->name(), "a text with at least one line", "an empty one");
      if (!targets) return;
      target_part = lines_next_to_input(*targets);
      repair(target_part, *targets, before);
    });
    share(part);
    if (files.targets) share(target_part);
    if (files.reference) share(reference_part);
  }

  void share(Lines& lines) {
    std::string text;
    for (const std::string& line : lines) (text += line) += '\n';
    text = context.world.broadcast(std::move(text));
    if (context.is_root()) return;
    lines.clear();
    for (std::size_t at = 0; at < text.size(); at += lines.back().size() + 1)
      lines.push_back(text.substr(at, text.find('\n', at) - at));
  }

  /// before: how many lines `source` gave before these.
  void repair(Lines& lines, const LineSource& source, std::uint64_t before) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!first_invalid_utf8(lines[i])) continue;
      if (!std::exchange(warned, true))
        context.log.warn("{}, line {}: not UTF-8; each byte that is not UTF-8 here or later becomes U+FFFD",
                         source.name(), before + i + 1);
      lines[i] = replace_invalid_utf8(lines[i]);
    }
  }

  /// As many lines as the part has. Throws Error{data} when the texts are found to be of different length.
  Lines lines_next_to_input(LineSource& source) {
    Lines lines;
    while (lines.size() < part.size()) {
      Lines more = source.next(part.size() - lines.size());
      if (more.empty())
        throw_unequal(input->is_at_end() ? std::optional{input->count()} : std::nullopt, source.count(), source.name());
      std::move(more.begin(), more.end(), std::back_inserter(lines));
    }
    if (input->is_at_end() && !source.is_at_end()) throw_unequal(input->count(), std::nullopt, source.name());
    return lines;
  }

  /// The lines that are written for line `number` of the input, from 0.
  [[nodiscard]] std::string written(const Translation& translation, std::uint64_t number) const {
    const auto aligned = [&](const Translation& one) {
      return files.with_alignments ? one.text + " ||| " + one.alignment : one.text;
    };
    if (!files.nbest)
      return (files.with_scores ? fmt::format("{:.6f}\t", translation.score) : "") + aligned(translation) + '\n';
    const auto listed = [&](const Translation& one) {
      return fmt::format("{} ||| {} ||| F0= {:.6f} ||| {:.6f}\n", number, aligned(one), one.log_probability, one.score);
    };
    std::string text = listed(translation);
    for (const Translation& other : translation.others) text += listed(other);
    return text;
  }

  /// first: number of the first line.
  void write(const std::vector<Translation>& translations, std::uint64_t first) {
    comm::at_root(context.world, [&] {
      std::string text;
      for (std::size_t i = 0; i < translations.size(); ++i) text += written(translations[i], first + i);
      output ? output->append(text) : context.print(text);
      const auto size_bytes = input->size_bytes();
      if (size_bytes && *size_bytes > files.part_bytes)
        context.log.progress("translating", static_cast<double>(input->done_bytes()), static_cast<double>(*size_bytes));
    });
  }

  /// Compares with the references; how long it took, in seconds.
  double count(const std::vector<Translation>& translations) {
    const double begin_s = context.clock.monotonic_s();
    comm::agree(context.world, [&] { counts.add(context.world, translations, reference_part); });
    return context.clock.monotonic_s() - begin_s;
  }

  comm::Context& context;
  const TextFiles files;
  Lines part, target_part, reference_part;
  ScoreCounts counts;
  // Rank 0:
  std::optional<LineSource> input, references, targets;
  std::optional<OutputFile> output;
  bool warned = false;
};

TextTranslation::TextTranslation(comm::Context& context, TextFiles files)
    : impl_(std::make_unique<Impl>(context, std::move(files))) {}

TextTranslation::~TextTranslation() = default;

TextReport TextTranslation::run(const TranslateLines& translate) {
  Impl& text = *impl_;
  TextReport report;
  for (; !text.part.empty(); text.share()) {
    const std::size_t lines = text.part.size();
    const std::vector<Translation> translations =
        translate({std::move(text.part), report.lines, std::move(text.target_part)});
    ARGOSY_CHECK(translations.size() == lines, "{} and {}", translations.size(), lines);
    text.write(translations, report.lines);
    report.lines += lines;
    if (text.files.reference) report.scoring_s += text.count(translations);
  }
  comm::agree(text.context.world, [&] {
    if (text.output) text.output->commit();
  });
  if (text.files.reference) report.scores = text.counts.scores(text.context.world);
  return report;
}

}  // namespace argosy::decode
