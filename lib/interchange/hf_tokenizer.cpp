#include "interchange/hf_tokenizer.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <functional>
#include <map>

#include "core/error.hpp"
#include "interchange/formats.hpp"
#include "tokenizer/piece_model.hpp"

namespace argosy::interchange {
namespace {

using boost::json::array;
using boost::json::object;
using tokenizer::Pieces, tokenizer::PieceType, tokenizer::space_mark;

std::string base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()), narrow<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

object normalizer(const Pieces& pieces) {
  array steps;
  if (!pieces.character_map.empty())
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(pieces.character_map)}});
  if (pieces.no_extra_spaces) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  if (pieces.dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", space_mark}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_mark}});
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

/// Every way to put a piece together from two others; the better a piece's score, the earlier.
array merges(const Pieces& pieces) {
  std::map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < pieces.texts.size(); ++id)
    if (pieces.types[id] == PieceType::normal) ids.emplace(pieces.texts[id], id);
  struct Merge {
    float score;
    std::size_t left, right;
  };
  std::vector<Merge> all;
  for (const auto& [text, id] : ids) {
    std::vector<Merge> own;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end()) own.push_back({pieces.scores[id], left->second, right->second});
    }
    std::ranges::sort(own, {}, [](const Merge& merge) { return std::pair{merge.left, merge.right}; });
    all.insert(all.end(), own.begin(), own.end());
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Merge::score);
  array list;
  for (const Merge& merge : all) list.emplace_back(pieces.texts[merge.left] + " " + pieces.texts[merge.right]);
  return list;
}

object model(const Pieces& pieces, const std::vector<std::string>& texts) {
  const auto unknown =
      static_cast<std::size_t>(std::ranges::find(pieces.types, PieceType::unknown) - pieces.types.begin());
  if (pieces.model_type == 1) {
    array vocabulary;
    for (std::size_t id = 0; id < texts.size(); ++id)
      vocabulary.push_back(array{texts[id], static_cast<double>(pieces.scores[id])});
    return {{"type", "Unigram"},
            {"unk_id", unknown},
            {"vocab", std::move(vocabulary)},
            {"byte_fallback", pieces.byte_fallback}};
  }
  object vocabulary;
  for (std::size_t id = 0; id < texts.size(); ++id) vocabulary[texts[id]] = id;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", texts.at(unknown)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", pieces.byte_fallback},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", merges(pieces)}};
}

object added_token(std::int64_t id, const std::string& text, bool special) {
  return {{"id", id},           {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", !special}, {"normalized", false}, {"special", special}};
}

}  // namespace

object tokenizer_json(const data::Tokenizer& tokenizer, Wrapping wrapping) {
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  const Pieces pieces(tokenizer.model_bytes());
  if (pieces.model_type != 1 && pieces.model_type != 2)
    throw_claim(Fault::data, "tokenizer.model splits text into words or characters, which tokenizer.json cannot say",
                "tokenizer.model", "a unigram or BPE model", fmt::format("model type {}", pieces.model_type),
                "train with data.tokenizer_training.type unigram or bpe, or use --format ct2");
  std::vector<std::string> texts = distinct_pieces(tokenizer);
  texts.resize(pieces.texts.size());  // without ids that no text has
  array added;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    const PieceType type = pieces.types.at(id);
    const bool special = type == PieceType::unknown || type == PieceType::control;
    if (special || type == PieceType::user)
      added.push_back(added_token(static_cast<std::int64_t>(id), texts[id], special));
  }
  if (vocabulary.pad && vocabulary.is_dead(*vocabulary.pad)) {
    for (std::int64_t id = vocabulary.pieces; id <= *vocabulary.pad; ++id)
      added.push_back(added_token(id, tokenizer.piece(id), true));
  }
  const bool bos = wrapping == Wrapping::bos_before;
  const std::optional<std::int64_t> mark_id = bos ? vocabulary.bos : vocabulary.eos;
  const auto single = [&](const char* sequence, int type) {
    array all{{{"Sequence", {{"id", sequence}, {"type_id", type}}}}};
    if (mark_id) {
      const object mark{{"SpecialToken", {{"id", tokenizer.piece(*mark_id)}, {"type_id", type}}}};
      all.insert(bos ? all.begin() : all.end(), mark);
    }
    return all;
  };
  array pair = single("A", 0);
  for (auto& item : single("B", 1)) pair.push_back(std::move(item));
  object special;
  if (mark_id) {
    const std::string mark = tokenizer.piece(*mark_id);
    special[mark] = {{"id", mark}, {"ids", array{*mark_id}}, {"tokens", array{mark}}};
  }
  array decoders{{{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}},
                 {{"type", "ByteFallback"}},
                 {{"type", "Fuse"}}};
  if (pieces.dummy_prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", normalizer(pieces)},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", single("A", 0)},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(special)}}},
          {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
          {"model", model(pieces, texts)}};
}

}  // namespace argosy::interchange
