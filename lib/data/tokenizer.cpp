#include "data/tokenizer.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"
#include "data/tokenizer_pack.hpp"
#include "tokenizer/pipeline.hpp"

namespace argosy::data {

namespace {

constexpr std::array layout_names{"Marian", "Pegasus", "T5", "Llama"};  // by spec::TokenLayout
constexpr std::array special_names{"bos", "eos", "unk", "pad"};
using SpecialIds = std::array<std::int64_t, special_names.size()>;  // -1: none

/// "bos 1, eos 2, unk 0, pad -1"
std::string ids_text(const SpecialIds& ids) {
  return fmt::format("bos {}, eos {}, unk {}, pad {}", ids[0], ids[1], ids[2], ids[3]);
}

/// Says which special pieces a tokenizer lacks or has elsewhere, and how to train one that has them.
[[noreturn]] void refuse_special_ids(std::string_view name, spec::TokenLayout layout, const SpecialIds& wanted,
                                     const SpecialIds& got, bool is_json) {
  std::string lacks;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] >= 0 && got[i] < 0) lacks += (lacks.empty() ? "" : " and ") + std::string{special_names[i]};
  throw_error(
      Fault::data, std::string{name},
      fmt::format("the ids of a {} model ({})", layout_names.at(static_cast<std::size_t>(layout)), ids_text(wanted)),
      ids_text(got) + (lacks.empty() ? "" : fmt::format(": it lacks {}", lacks)),
      is_json ? "say the ids of this tokenizer in model.token_ids"
              : fmt::format("train one with data.tokenizer_training, or with spm_train --bos_id={} --eos_id={} "
                            "--unk_id={} --pad_id={}",
                            wanted[0], wanted[1], wanted[2], wanted[3]));
}

}  // namespace

/// What a tokenizer file says, whatever its format. Ids are [0, size()).
struct Tokenizer::Model {
  virtual ~Model() = default;
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text, Side side) const = 0;
  [[nodiscard]] virtual std::string decode(const std::vector<std::int32_t>& ids) const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;
  [[nodiscard]] virtual std::string piece(std::int32_t id) const = 0;
  [[nodiscard]] virtual float score(std::int32_t id) const = 0;
  [[nodiscard]] virtual std::optional<std::int64_t> id_of(std::string_view piece) const = 0;
  [[nodiscard]] virtual std::optional<std::int64_t> unknown() const = 0;
  [[nodiscard]] virtual std::optional<bool> puts_before(std::int64_t id) const = 0;
  /// Of a tokenizer.json; null: a SentencePiece model.
  [[nodiscard]] virtual const tokenizer::Pipeline* pipeline() const { return nullptr; }
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;
  [[nodiscard]] virtual TokenizerKind kind() const = 0;
  /// The ids that a layout decides, as far as the file has them.
  [[nodiscard]] virtual SpecialIds special_ids(const spec::Vocabulary& wanted) const = 0;
};

/// A .model file of SentencePiece.
struct Tokenizer::SentencePieceModel final : Model {
  static constexpr std::string_view space_mark = "\xe2\x96\x81";
  sentencepiece::SentencePieceProcessor processor;
  std::vector<std::int32_t> mark_bytes;  // of space_mark

  SentencePieceModel(const std::string& bytes, std::string_view name) {
    if (!processor.LoadFromSerializedProto(bytes).ok())
      throw_error(Fault::data, std::string{name}, "a SentencePiece model or a tokenizer.json",
                  fmt::format("{} bytes that are neither", bytes.size()),
                  "use the .model file that SentencePiece or preprocess wrote, or a tokenizer.json of Hugging Face");
    find_mark_bytes();
  }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Side) const override {
    if (mark_bytes.empty() || text.find(space_mark) == std::string_view::npos) return encode_part(text);
    std::vector<std::int32_t> ids;
    while (true) {
      const std::size_t at = text.find(space_mark);
      const std::vector<std::int32_t> part = encode_part(text.substr(0, at));
      ids.insert(ids.end(), part.begin(), part.end());
      if (at == std::string_view::npos) return ids;
      ids.insert(ids.end(), mark_bytes.begin(), mark_bytes.end());
      text.remove_prefix(at + space_mark.size());
    }
  }
  [[nodiscard]] std::vector<std::int32_t> encode_part(std::string_view text) const {
    // The library makes several strings for each piece. Those of the thread's last text are used again, unless it was
    // so long that its memory should be given back.
    constexpr std::size_t most_kept = 65536;
    thread_local sentencepiece::ImmutableSentencePieceText cut;
    const auto status = processor.Encode(text, cut.mutable_proto());
    ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
    std::vector<std::int32_t> ids;
    for (const auto& piece : cut.pieces()) ids.push_back(narrow<std::int32_t>(piece.id()));
    if (text.size() > most_kept) cut = {};
    return ids;
  }
  /// Models that keep every byte, but for one character: U+2581 stands for a space in pieces, so that a text's own
  /// would come back as a space. They get its bytes as pieces.
  void find_mark_bytes() {
    const std::string probe = "  \xef\xac\x81\n\t ";  // changed by other models: a ligature, white space
    const std::vector<int> bytes{processor.PieceToId("<0xE2>"), processor.PieceToId("<0x96>"),
                                 processor.PieceToId("<0x81>")};
    const bool has_bytes = std::ranges::all_of(bytes, [&](int id) { return processor.IsByte(id); });
    if (has_bytes && decode(encode_part(probe)) == probe) mark_bytes = bytes;
  }
  [[nodiscard]] std::string decode(const std::vector<std::int32_t>& ids) const override {
    std::string text;
    const auto status = processor.Decode(ids, &text);
    ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
    return text;
  }
  [[nodiscard]] std::int32_t size() const override { return processor.GetPieceSize(); }
  [[nodiscard]] std::string piece(std::int32_t id) const override { return processor.IdToPiece(id); }
  [[nodiscard]] float score(std::int32_t id) const override { return processor.GetScore(id); }
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view piece) const override {
    const int id = processor.PieceToId(piece);
    if (id == processor.unk_id() && processor.IdToPiece(id) != piece) return std::nullopt;
    return id;
  }
  [[nodiscard]] std::optional<std::int64_t> unknown() const override { return processor.unk_id(); }
  [[nodiscard]] std::optional<bool> puts_before(std::int64_t) const override { return std::nullopt; }
  [[nodiscard]] TokenizerKind kind() const override { return TokenizerKind::sentence_piece; }
  [[nodiscard]] bool is_special(std::int32_t id) const override {
    return processor.IsControl(id) || processor.IsUnknown(id) || processor.IsUnused(id);
  }
  [[nodiscard]] SpecialIds special_ids(const spec::Vocabulary&) const override {
    return {processor.bos_id(), processor.eos_id(), processor.unk_id(), processor.pad_id()};
  }
};

/// A tokenizer.json of Hugging Face.
struct Tokenizer::JsonModel final : Model {
  tokenizer::Pipeline json;

  JsonModel(const std::string& bytes, std::string_view name) : json(tokenizer::Pipeline::load(bytes, name)) {}
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Side) const override {
    return json.encode(text);
  }
  [[nodiscard]] std::string decode(const std::vector<std::int32_t>& ids) const override { return json.decode(ids); }
  [[nodiscard]] std::int32_t size() const override { return json.size(); }
  [[nodiscard]] std::string piece(std::int32_t id) const override { return json.piece(id); }
  [[nodiscard]] float score(std::int32_t id) const override { return json.score(id); }
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view piece) const override { return json.id_of(piece); }
  [[nodiscard]] std::optional<std::int64_t> unknown() const override { return json.unknown(); }
  [[nodiscard]] std::optional<bool> puts_before(std::int64_t id) const override {
    return std::ranges::count(json.prefix(), id) > 0;
  }
  [[nodiscard]] TokenizerKind kind() const override { return TokenizerKind::json; }
  [[nodiscard]] const tokenizer::Pipeline* pipeline() const override { return &json; }
  [[nodiscard]] bool is_special(std::int32_t id) const override { return json.is_special(id) || json.unknown() == id; }
  /// The file does not say which of its special pieces begins or ends a text.
  [[nodiscard]] SpecialIds special_ids(const spec::Vocabulary& wanted) const override {
    const auto if_special = [&](std::optional<std::int64_t> id) {
      const bool special = id && *id < size() && json.is_special(narrow<std::int32_t>(*id));
      return special ? *id : std::int64_t{-1};
    };
    return {if_special(wanted.bos), if_special(wanted.eos), unknown().value_or(-1), if_special(wanted.pad)};
  }
};

/// A piece table.
struct Tokenizer::TableModel final : Model {
  PieceTable table;

  TableModel(const std::string& bytes, std::string_view name) : table(unpack(bytes, name), name) {}
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Side side) const override {
    return table.encode(text, side);
  }
  [[nodiscard]] std::string decode(const std::vector<std::int32_t>& ids) const override { return table.decode(ids); }
  [[nodiscard]] std::int32_t size() const override { return table.size(); }
  [[nodiscard]] std::string piece(std::int32_t id) const override { return table.piece(id); }
  [[nodiscard]] float score(std::int32_t id) const override { return table.score(id); }
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view piece) const override { return table.id_of(piece); }
  [[nodiscard]] std::optional<std::int64_t> unknown() const override { return table.id_of("<unk>"); }
  [[nodiscard]] std::optional<bool> puts_before(std::int64_t) const override { return std::nullopt; }
  [[nodiscard]] TokenizerKind kind() const override { return TokenizerKind::table; }
  [[nodiscard]] bool is_special(std::int32_t id) const override {
    const std::string piece = table.piece(id);
    return piece == "<s>" || piece == "</s>" || piece == "<unk>" || piece == "<pad>";
  }
  [[nodiscard]] SpecialIds special_ids(const spec::Vocabulary& wanted) const override {
    const auto if_wanted = [&](std::optional<std::int64_t> id, const char* piece) {
      return id && *id < size() ? table.id_of(piece).value_or(-1) : std::int64_t{-1};
    };
    return {if_wanted(wanted.bos, "<s>"), if_wanted(wanted.eos, "</s>"), if_wanted(wanted.unk, "<unk>"),
            if_wanted(wanted.pad, "<pad>")};
  }
};

/// One for each language, or for each side.
struct Tokenizer::Parts {
  bool by_language = true;
  std::map<std::string, Tokenizer> each;
};

namespace {

constexpr std::string_view source_name = "source", target_name = "target";

std::string name_of_part(std::string_view name, std::string_view part) { return fmt::format("{} ({})", name, part); }

}  // namespace

Tokenizer Tokenizer::load(std::string model_bytes, spec::VocabularyRule rule, std::string_view name) {
  if (is_several(model_bytes)) {
    const TokenizerPack several = unpack_several(model_bytes, name);
    return of_files(several.by_language, several.files, rule, name);
  }
  Tokenizer tokenizer;
  if (is_packed(model_bytes))
    tokenizer.model_ = std::make_shared<const TableModel>(model_bytes, name);
  else if (model_bytes.starts_with('{'))
    tokenizer.model_ = std::make_shared<const JsonModel>(model_bytes, name);
  else
    tokenizer.model_ = std::make_shared<const SentencePieceModel>(model_bytes, name);
  tokenizer.digest_ = digest_of(model_bytes);
  tokenizer.model_bytes_ = std::make_shared<const std::string>(std::move(model_bytes));
  tokenizer.apply(rule, name);
  return tokenizer;
}

Tokenizer Tokenizer::by_language(const TokenizerFiles& files, spec::VocabularyRule rule, std::string_view name) {
  return of_files(true, files, rule, name);
}

Tokenizer Tokenizer::by_side(std::string source, std::string target, spec::VocabularyRule rule, std::string_view name) {
  const TokenizerFiles files{{std::string{source_name}, std::move(source)},
                             {std::string{target_name}, std::move(target)}};
  return of_files(false, files, rule, name);
}

Tokenizer Tokenizer::of_files(bool by_language, const TokenizerFiles& files, spec::VocabularyRule rule,
                              std::string_view name) {
  ARGOSY_CHECK(!files.empty(), "{}: no file", name);
  Parts parts{.by_language = by_language, .each = {}};
  for (const auto& [part, bytes] : files) {
    if (is_several(bytes))
      throw_error(Fault::data, name_of_part(name, part), "one tokenizer", "several", "name files of one each");
    parts.each.emplace(part, load(bytes, rule, name_of_part(name, part)));
  }
  Tokenizer tokenizer = of_parts(std::move(parts));
  tokenizer.apply(rule, name);
  return tokenizer;
}

Tokenizer Tokenizer::of_parts(Parts parts) {
  Tokenizer tokenizer;
  tokenizer.vocabulary_ = parts.each.begin()->second.vocabulary();
  Hasher hasher;
  for (const auto& [part, own] : parts.each) hasher.update(fmt::format("{} {}\n", part, own.digest().hex()));
  tokenizer.digest_ = hasher.digest();
  tokenizer.parts_ = std::make_shared<const Parts>(std::move(parts));
  return tokenizer;
}

void Tokenizer::apply(spec::VocabularyRule rule, std::string_view name) {
  if (parts_) {
    Parts parts = *parts_;
    for (const auto& [part, own] : parts.each) rule.least_pieces = std::max(rule.least_pieces, own.spelled_ids());
    for (auto& [part, own] : parts.each) own.apply(rule, name_of_part(name, part));
    *this = of_parts(std::move(parts));
    return;
  }
  vocabulary_ = spec::vocabulary_of(rule, std::max<std::int64_t>(model_->size(), rule.least_pieces));
  if (rule.ids) return;
  const std::int64_t file_pad = vocabulary_.pad && *vocabulary_.pad < vocabulary_.pieces ? *vocabulary_.pad : -1;
  const SpecialIds wanted{vocabulary_.bos.value_or(-1), vocabulary_.eos, vocabulary_.unk.value_or(-1), file_pad};
  const SpecialIds got = model_->special_ids(vocabulary_);
  if (wanted != got)
    refuse_special_ids(name, rule.layout, wanted, got, model_->kind() != TokenizerKind::sentence_piece);
}

Tokenizer Tokenizer::read(const Files& files, const Path& path, spec::VocabularyRule rule) {
  return load(tokenizer_bytes(files, path), rule, path.string());
}

Tokenizer Tokenizer::of(std::span<const std::string> languages) const {
  if (!is_by_language()) return *this;
  const auto own = [&](const std::string& language) -> const Tokenizer& {
    const auto found = parts_->each.find(language);
    if (found == parts_->each.end())
      throw_error(Fault::config, "data.tokenizer", "a tokenizer of the language " + language, "none",
                  "add a task with this language, or name another");
    return found->second;
  };
  if (languages.empty())
    throw_error(Fault::config, "data.tokenizer", "the languages of the text, since each has its own tokenizer", "none",
                "give the corpus languages, or name the tokenizer of its language");
  const Tokenizer &source = own(languages.front()), &target = own(languages.back());
  if (source.digest() == target.digest()) return target;
  return of_parts(
      {.by_language = false, .each = {{std::string{source_name}, source}, {std::string{target_name}, target}}});
}

bool Tokenizer::is_by_language() const noexcept { return parts_ && parts_->by_language; }
bool Tokenizer::is_by_side() const noexcept { return parts_ && !parts_->by_language; }

const std::map<std::string, Tokenizer>& Tokenizer::parts() const {
  static const std::map<std::string, Tokenizer> none;
  return parts_ ? parts_->each : none;
}

const Tokenizer& Tokenizer::side(Side of) const {
  if (!is_by_side()) return *this;
  return parts_->each.at(std::string{of == Side::source ? source_name : target_name});
}

const Tokenizer::Model& Tokenizer::model() const {
  ARGOSY_CHECK(model_ != nullptr, "one of several tokenizers is asked, and it is not said which");
  return *model_;
}

std::string Tokenizer::model_bytes() const {
  if (!parts_) return *model_bytes_;
  TokenizerFiles files;
  for (const auto& [part, own] : parts_->each) files.emplace(part, own.model_bytes());
  return pack_several({parts_->by_language, std::move(files)});
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Side of) const {
  return side(of).model().encode(text, of);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  const Model& model = side(Side::target).model();
  std::vector<std::int32_t> live;
  live.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < model.size()) live.push_back(id);
  }
  return model.decode(live);
}

std::string Tokenizer::piece(std::int64_t id) const {
  ARGOSY_CHECK(id >= 0 && id < vocabulary_.rows, "id {} of {}", id, vocabulary_.rows);
  if (id < model().size()) return model().piece(narrow<std::int32_t>(id));
  if (vocabulary_.pad == id) return "<pad>";
  return fmt::format("<unused_{}>", id - model().size());
}

float Tokenizer::score(std::int64_t id) const {
  ARGOSY_CHECK(id >= 0 && id < model().size(), "id {} of {}", id, vocabulary_.pieces);
  return model().score(narrow<std::int32_t>(id));
}

std::int64_t Tokenizer::spelled_ids() const { return model().size(); }
std::optional<std::int64_t> Tokenizer::unknown() const { return model().unknown(); }
std::optional<std::int64_t> Tokenizer::id_of(std::string_view piece) const { return model().id_of(piece); }
std::optional<bool> Tokenizer::puts_before(std::int64_t id) const { return model().puts_before(id); }
const tokenizer::Pipeline* Tokenizer::pipeline() const { return model().pipeline(); }
bool Tokenizer::is_ordinary(std::int64_t id) const {
  if (id < 0 || id >= model().size() || model().is_special(narrow<std::int32_t>(id))) return false;
  return id != vocabulary_.eos && vocabulary_.bos != id && vocabulary_.pad != id && vocabulary_.unk != id;
}
TokenizerKind Tokenizer::kind() const { return model().kind(); }

std::string tokenizer_bytes(const Files& files, const Path& path) {
  if (!files.exists(path))
    throw_claim(Fault::data, path.string() + ": the tokenizer does not exist", path.string(), "the tokenizer",
                "no such file",
                "run preprocess, which trains it if data.tokenizer_training is set, or correct data.tokenizer");
  return files.read_text(path);
}

boost::json::value digests_of(const Tokenizer& tokenizer) {
  if (!tokenizer.is_by_language()) return boost::json::value(tokenizer.digest().hex());
  boost::json::object digests;
  for (const auto& [language, own] : tokenizer.parts()) digests[language] = own.digest().hex();
  return digests;
}

}  // namespace argosy::data
