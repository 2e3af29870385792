#include "interchange/table_tokenizer.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <optional>

#include "core/error.hpp"

namespace argosy::interchange {
namespace {

constexpr const char *source_file = "source.spm", *target_file = "target.spm", *table_file = "vocab.json",
                     *target_table_file = "target_vocab.json", *source_pieces_file = "source_vocabulary.json",
                     *m2m_file = "sentencepiece.bpe.model", *t5_file = "spiece.model",
                     *tokenizer_config_file = "tokenizer_config.json";
constexpr std::uint64_t most_table_bytes = 64 << 20;

/// Whether the ids of the table are the model's own, and then those of fillers and padding.
bool repeats(const std::string& table, const std::string& model, const Path& where, const char* model_file) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(table, error);
  if (error || !value.is_object())
    throw_error(Fault::data, where.string(), "a JSON object", error ? error.message() : "another value",
                "get the folder again");
  const data::Tokenizer tokenizer =
      data::Tokenizer::load(model, {.ids = spec::TokenIds{}}, (where.parent_path() / model_file).string());
  const std::int64_t pieces = tokenizer.vocabulary().pieces;
  std::int64_t same = 0;
  for (const auto& [piece, id] : value.get_object()) {
    const bool filler = piece == "<pad>" || piece.starts_with("<unused_");
    if (!id.is_int64() || id.get_int64() < 0 || (id.get_int64() >= pieces && !filler)) return false;
    if (id.get_int64() >= pieces) continue;
    if (tokenizer.piece(id.get_int64()) != std::string_view{piece}) return false;
    ++same;
  }
  return same == pieces;
}

/// Which set of language tokens M2M-100's tokenizer has.
std::string languages_of(const Files& files, const Path& folder) {
  const Path path = folder / tokenizer_config_file;
  if (!files.exists(path)) return "m2m100";
  boost::json::error_code error;
  const boost::json::value config = boost::json::parse(files.read_text(path, most_table_bytes), error);
  if (error || !config.is_object())
    throw_error(Fault::data, path.string(), "a JSON object", error ? error.message() : "another value",
                "get the folder again");
  const boost::json::value* const set = config.get_object().if_contains("language_codes");
  return set != nullptr && set->is_string() ? std::string{set->get_string()} : "m2m100";
}

/// The tokenizer of a side that has a vocabulary of its own: its model, with a table of ids if these are others.
std::string read_side(const Files& files, const Path& folder, const char* model_file, const char* table_name) {
  std::string model = files.read_text(folder / model_file);
  const Path path = folder / table_name;
  if (!files.exists(path)) return model;
  std::string table = files.read_text(path, most_table_bytes);
  if (repeats(table, model, path, model_file)) return model;
  return data::pack({.source = std::move(model), .target = {}, .table = std::move(table), .languages = {}});
}

/// Such a tokenizer as one file; nullopt: there is none.
std::optional<std::string> read_table(const Files& files, const Path& folder) {
  const Path table = folder / table_file, source = folder / source_file, target = folder / target_file;
  if (files.exists(folder / m2m_file) && files.exists(table))
    return data::pack({.source = files.read_text(folder / m2m_file),
                       .target = {},
                       .table = files.read_text(table, most_table_bytes),
                       .languages = languages_of(files, folder)});
  if (!files.exists(source)) return std::nullopt;
  data::TableParts parts{.source = files.read_text(source), .target = {}, .table = {}, .languages = {}};
  if (files.exists(target)) parts.target = files.read_text(target);
  if (parts.target == parts.source) parts.target.clear();
  if (files.exists(table)) {
    parts.table = files.read_text(table, most_table_bytes);
    if (parts.target.empty() && repeats(parts.table, parts.source, table, source_file)) return std::nullopt;
    return data::pack(parts);
  }
  if (parts.target.empty()) return std::nullopt;
  throw_claim(Fault::data,
              fmt::format("{} is another model than source.spm, and there is no vocab.json, which says the ids of both",
                          target.string()),
              target.string(), "a vocab.json", "none", "copy the folder's vocab.json there");
}

}  // namespace

data::Tokenizer read_folder_tokenizer(const Files& files, const Path& folder, bool is_t5) {
  const auto loaded = [](std::string bytes, const Path& path) {
    return data::Tokenizer::load(std::move(bytes), {.ids = spec::TokenIds{}}, path.string());
  };
  const bool has_sides = files.exists(folder / target_table_file) || files.exists(folder / source_pieces_file);
  if (has_sides && files.exists(folder / source_file))
    return data::Tokenizer::by_side(read_side(files, folder, source_file, table_file),
                                    read_side(files, folder, target_file, target_table_file), {.ids = spec::TokenIds{}},
                                    folder.string());
  if (std::optional<std::string> table = read_table(files, folder)) return loaded(std::move(*table), folder);
  for (const char* const name : {source_file, "tokenizer.model", "tokenizer.json", t5_file})
    if (const Path path = folder / name; files.exists(path) && (is_t5 || name != t5_file))
      return loaded(files.read_text(path), path);
  throw_error(Fault::data, folder.string(), "a tokenizer.json or tokenizer.model", "neither",
              "copy the tokenizer's files there");
}

void write_table_tokenizer(OutputFolder& output, const data::TableParts& parts) {
  output.write(table_file, parts.table);
  if (parts.languages.empty()) {
    output.write(source_file, parts.source);
    output.write(target_file, parts.target.empty() ? parts.source : parts.target);
  } else {
    output.write(m2m_file, parts.source);
  }
}

}  // namespace argosy::interchange
