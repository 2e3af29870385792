#include "data/tokenizer_training.hpp"
#include "interchange/source.hpp"
#include "support/small_text.hpp"
#include "unit/interchange/hf_import_case.hpp"

/// Folders with a table of ids, or a tokenizer for each side.
namespace argosy::interchange {
namespace {

using testing::HasSubstr;

class HfImportOfTables : public HfImport {
 protected:
  /// Exports a model whose tokenizer has a model for each side, and a table that both share.
  void write_pair(const char* format, const spec::ModelConfig& config) {
    boost::json::object ids{{"</s>", 0}, {"<unk>", 1}};
    const auto number = [&](const std::string& piece) { ids.emplace(piece, ids.size()); };
    parts.source = test::small_tokenizer(spec::TokenLayout::marian).model_bytes();
    parts.target = test::small_tokenizer(spec::TokenLayout::llama).model_bytes();
    const data::Tokenizer& source = test::small_tokenizer(spec::TokenLayout::marian);
    for (std::int64_t id = source.vocabulary().pieces - 1; id > 1; --id) number(source.piece(id));
    number(">>fr<<");
    number("<pad>");
    parts.table = boost::json::serialize(ids) + "\n";
    tokenizer_json = data::pack(parts);
    spec::ModelConfig with_table = config;
    with_table.vocab_multiple = 1;
    write(format, with_table);
  }

  data::TableParts parts;
};

TEST_F(HfImportOfTables, TwoModelsAndATableAreReadAndComeBackByteForByte) {
  for (const char* const format : {"hf", "ct2"}) {
    write_pair(format, translation);
    EXPECT_EQ(read("source.spm"), parts.source);
    EXPECT_EQ(read("target.spm"), parts.target);
    EXPECT_EQ(read("vocab.json"), parts.table);
    const model::StoredModel model = open_source(context.get(), out.string());
    EXPECT_EQ(model.tokenizer.model_bytes(), tokenizer_json);
    EXPECT_EQ(model.spec.architecture.vocabulary.rows, 302);
    EXPECT_EQ(model.spec.architecture.vocabulary.pad, 301);
    EXPECT_EQ(model.tokenizer.id_of(">>fr<<"), 300);
    // The table counts, not the ids of the SentencePiece model.
    EXPECT_EQ(model.tokenizer.id_of(test::small_tokenizer(spec::TokenLayout::marian).piece(299)), 2);
  }
}

TEST_F(HfImportOfTables, ATokenizerForEachSideIsReadAndComesBackByteForByte) {
  const std::string source = test::small_tokenizer(spec::TokenLayout::marian).model_bytes(),
                    target = data::train_tokenizer({.vocab_size = 260}, test::verses(400).spanish,
                                                   spec::TokenLayout::marian);
  spec::ModelConfig by_side = translation;
  by_side.tie_inputs = false;
  for (const char* const format : {"hf", "ct2"}) {
    tokenizer_json = data::Tokenizer::by_side(source, target, {}).model_bytes();
    write(format, by_side);
    EXPECT_EQ(read("source.spm"), source);
    EXPECT_EQ(read("target.spm"), target);
    const model::StoredModel model = open_source(context.get(), out.string());
    EXPECT_EQ(model.tokenizer.model_bytes(), tokenizer_json);
    EXPECT_EQ(model.spec.architecture.vocabulary.pieces, 300);
    EXPECT_EQ(model.config.token_ids, std::nullopt);
    const std::string pieces = read(format == std::string("hf") ? "target_vocab.json" : "target_vocabulary.json");
    EXPECT_THAT(pieces, HasSubstr("<unused_39>"));
  }
  EXPECT_FALSE(Files::system().exists(out / "shared_vocabulary.json"));
  boost::json::value pieces = boost::json::parse(read("target_vocabulary.json"));
  std::swap(pieces.as_array()[5], pieces.as_array()[6]);
  Files::system().write_atomically(out / "target_vocabulary.json", boost::json::serialize(pieces));
  const auto refused_folder = [&] {
    return test::refusal(Fault::data, [&] { (void)open_source(context.get(), out.string()); });
  };
  EXPECT_THAT(refused_folder(), HasSubstr("target_vocabulary.json: expected the pieces of the folder's tokenizer"));
  EXPECT_THAT(test::refusal(Fault::corrupt, [&] { write("hf", translation); }),
              HasSubstr("a tokenizer for each side only where each side has its embeddings"));
  // A folder of others: ids that only the tables say.
  write("hf", by_side);
  for (const char* const name : {"vocab.json", "target_vocab.json"}) {
    boost::json::value ids = boost::json::parse(read(name));
    std::vector<std::string> names;
    for (const auto& [piece, id] : ids.as_object()) {
      if (id == 7) names.emplace_back(piece);
      if (id == 8) names.emplace_back(piece);
    }
    std::swap(ids.at(names.at(0)), ids.at(names.at(1)));
    Files::system().write_atomically(out / name, boost::json::serialize(ids));
  }
  const model::StoredModel model = open_source(context.get(), out.string());
  for (const auto& [side, bytes] : {std::pair{data::Side::source, &source}, {data::Side::target, &target}}) {
    const data::Tokenizer &own = model.tokenizer.side(side), alone = data::Tokenizer::load(*bytes, {});
    EXPECT_EQ(own.kind(), data::TokenizerKind::table);
    EXPECT_EQ(own.id_of(alone.piece(7)), 8);
  }
  EXPECT_THAT(
      test::refusal(Fault::data, [&] { (void)format_named("hf").write(context.get(), model, folder / "no", {}); }),
      HasSubstr("both are SentencePiece models"));
  boost::json::value ids = boost::json::parse(read("target_vocab.json")),
                     config = boost::json::parse(read("config.json"));
  std::swap(ids.at("</s>"), ids.at("<unk>"));
  config.at("eos_token_id") = 1;
  Files::system().write_atomically(out / "target_vocab.json", boost::json::serialize(ids));
  Files::system().write_atomically(out / "config.json", boost::json::serialize(config));
  EXPECT_THAT(refused_folder(),
              HasSubstr("one piece of the id 1, which ends a text, in all tokenizers, got <unk>, and </s> of target"));
}

TEST_F(HfImportOfTables, ATableThatRepeatsTheModelIsLeftOut) {
  write("hf", translation);
  EXPECT_EQ(open_source(context.get(), out.string()).tokenizer.kind(), data::TokenizerKind::sentence_piece);
  boost::json::value more = boost::json::parse(read("vocab.json"));
  std::swap(more.at("<unused_0>"), more.as_object()[">>fr<<"]);
  more.as_object().erase("<unused_0>");
  Files::system().write_atomically(out / "vocab.json", boost::json::serialize(more));
  EXPECT_EQ(open_source(context.get(), out.string()).tokenizer.kind(), data::TokenizerKind::table);
}

TEST_F(HfImportOfTables, RefusesFoldersThatDoNotFitTogether) {
  write_pair("hf", translation);
  boost::json::value other = boost::json::parse(read("vocab.json"));
  std::swap(other.at("</s>"), other.at("<unk>"));
  Files::system().write_atomically(out / "vocab.json", boost::json::serialize(other));
  EXPECT_THAT(refused(Fault::data), HasSubstr("eos_token_id is 0, and </s> has the id 1 in vocab.json"));
  Files::system().write_atomically(out / "vocab.json", std::string_view{"[]"});
  EXPECT_THAT(refused(Fault::data), HasSubstr("vocab.json: expected a JSON object"));
  Files::system().remove(out / "vocab.json");
  EXPECT_THAT(refused(Fault::data), HasSubstr("target.spm is another model than source.spm"));
  Files::system().write_atomically(out / "target_vocab.json", std::string_view{"{}"});
  EXPECT_THAT(refused(Fault::data), HasSubstr("(target): vocab.json: expected the piece <unk>"));
  tokenizer_json.clear();
  write("hf", translation);
  Files::system().write_atomically(out / "vocab.json", std::string_view{"[]"});
  EXPECT_THAT(refused(Fault::data), HasSubstr("a JSON object"));
}

TEST_F(HfImportOfTables, LanguageTokensComeWithM2m100) {
  boost::json::object ids{{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"<unk>", 3}};
  const data::Tokenizer& pieces = test::small_tokenizer(spec::TokenLayout::marian);
  for (std::int64_t id = 2; id < pieces.vocabulary().pieces; ++id) ids.emplace(pieces.piece(id), ids.size());
  for (const char* const languages : {"m2m100", "wmt21"}) {
    parts = {
        .source = pieces.model_bytes(), .target = {}, .table = boost::json::serialize(ids), .languages = languages};
    tokenizer_json = data::pack(parts);
    spec::ModelConfig config = m2m;
    config.token_ids = spec::TokenIds{.eos = 2, .unk = 3, .bos = 0, .pad = 1, .start = 2};
    config.vocab_size = 420;
    for (const char* const format : {"hf", "ct2"}) {
      write(format, config);
      EXPECT_EQ(read("sentencepiece.bpe.model"), parts.source);
      EXPECT_EQ(read("vocab.json"), parts.table);
      const model::StoredModel model = open_source(context.get(), out.string());
      EXPECT_EQ(model.tokenizer.model_bytes(), tokenizer_json) << format;
      EXPECT_EQ(model.config.token_ids, config.token_ids) << format;
      EXPECT_TRUE(model.tokenizer.id_of("__de__"));
    }
  }
  Files::system().remove(out / "tokenizer_config.json");  // which says wmt21: without it m2m100 is meant
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)open_source(context.get(), out.string()); }),
              HasSubstr("shared_vocabulary.json"));
}

TEST_F(HfImportOfTables, AFamilyWithoutThemAndAnotherPaddingAreRefused) {
  EXPECT_THAT(test::refusal(Fault::data, [&] { write_pair("hf", pegasus); }), HasSubstr("have no table of ids"));
  EXPECT_NO_THROW(write_pair("ct2", pegasus));
  spec::ModelConfig padded = translation;  // with fillers before the padding
  EXPECT_THAT(test::refusal(Fault::data, [&] { write("hf", padded); }), HasSubstr("model.vocab_multiple"));
}

}  // namespace
}  // namespace argosy::interchange
