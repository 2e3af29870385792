#include "data/compressed.hpp"

#include <gmock/gmock.h>
#include <utime.h>

#include "core/file_name.hpp"
#include "data/records.hpp"
#include "support/compress.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::data {
namespace {

using test::gzipped, test::zstd_packed;
using testing::AllOf, testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

class Compressed : public testing::Test {
 protected:
  Path write(const std::string& name, const std::string& text) {
    Files::system().write_atomically(folder_ / name, text);
    return folder_ / name;
  }
  /// The text of a compressed file, read in pieces of this size.
  std::string text_of(const std::string& packed, std::size_t piece_bytes, UnpackedLimit limit = {}) {
    const Path path = write("packed", packed);
    Unpacker unpacker{files_.open(path), compression_of(files_, path), limit};
    std::string text, piece(piece_bytes, '\0');
    while (const std::size_t count = unpacker.read(piece)) {
      text.append(piece, 0, count);
      if (count < piece.size()) break;
    }
    EXPECT_EQ(unpacker.packed_digest(), digest_of(packed));
    return text;
  }
  std::vector<std::string> unpacked() { return Files::system().list(unpack_.folder); }

  test::TempFolder folder_;
  test::FaultyOs os_;
  Files files_{os_};
  UnpackSettings unpack_{.folder = folder_ / "unpacked"};
};

std::string some_text() {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += std::to_string(i * 7919 % 100003) + (i % 9 == 0 ? "\n" : " ");
  return text;
}

TEST_F(Compressed, IsKnownByItsFirstBytes) {
  const std::tuple<const char*, std::string, Compression> files[] = {{"a.gz", "plain", Compression::none},
                                                                     {"b", "", Compression::none},
                                                                     {"c", "\x1f", Compression::none},
                                                                     {"d.txt", gzipped("x"), Compression::gzip},
                                                                     {"e.gz", zstd_packed("x"), Compression::zstd}};
  for (const auto& [name, bytes, compression] : files)
    EXPECT_EQ(compression_of(files_, write(name, bytes)), compression) << name;
}

TEST_F(Compressed, MembersAndFramesAreOneText) {
  const std::string text = some_text(), half = text.substr(0, text.size() / 2), rest = text.substr(text.size() / 2);
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{1} << 20}) {
    EXPECT_TRUE(text_of(gzipped(half) + gzipped("") + gzipped(rest), piece) == text);
    EXPECT_TRUE(text_of(zstd_packed(half) + zstd_packed("") + zstd_packed(rest), piece) == text);
  }
  EXPECT_EQ(text_of(gzipped(""), 9), "");
}

TEST_F(Compressed, SaysHowFarADamagedFileWasRead) {
  const std::string text = some_text();
  for (const auto& packed : {gzipped(text), zstd_packed(text)}) {
    const auto refused = [&](const std::string& bytes) {
      return test::refusal(Fault::corrupt, [&] { (void)text_of(bytes, 1 << 20); });
    };
    for (const std::size_t size : {packed.size() - 1, packed.size() / 2, std::size_t{12}})
      EXPECT_THAT(refused(packed.substr(0, size)),
                  AllOf(HasSubstr("packed: expected a whole compressed file, got its end after " +
                                  std::to_string(size) + " bytes of the file and "),
                        HasSubstr("bytes of text")))
          << size;
    std::string damaged = packed;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
    EXPECT_THAT(refused(damaged), HasSubstr("packed: expected a whole compressed file, got"));
    EXPECT_THAT(refused(packed + "no member"), HasSubstr("got damage ("));
  }
}

TEST_F(Compressed, RefusesAFileThatExpandsBeyondTheLimit) {
  const std::string zeros(40 << 20, ' ');
  for (const auto& packed : {gzipped(zeros), zstd_packed(zeros)}) {
    EXPECT_EQ(text_of(packed, 1 << 20).size(), zeros.size());  // within 1 GiB all may expand
    EXPECT_THAT(test::refusal(Fault::data, [&] { (void)text_of(packed, 1 << 20, 1000000); }),
                AllOf(HasSubstr("packed: expected a text of at most 1000000 bytes"), HasSubstr("data.unpacked_limit")));
  }
}

TEST_F(Compressed, IsUnpackedOnceAndNamedInMessages) {
  const Path path = write("text.gz", gzipped("one\ntwo\n\xff\n"));
  const TextRules rules{.invalid_utf8 = InvalidUtf8::replace};
  const auto read = [&] { return read_records(files_, rules, {{path}, {}}, unpack_).records.at(1).target; };
  EXPECT_EQ(read(), "two");
  ASSERT_EQ(unpacked().size(), 1U);
  write("unpacked/" + unpacked()[0], "one\nnew\n");  // it is this that is read
  EXPECT_EQ(read(), "new");
  write("text.gz", gzipped("one\nthree\n\xff"));
  EXPECT_EQ(read(), "three");
  EXPECT_THAT(test::refusal(Fault::data,
                            [&] {
                              (void)read_records(files_, {}, {{path}, {}}, unpack_);
                            }),
              HasSubstr("text.gz line 3, byte 10"));
}

TEST_F(Compressed, LeavesNothingOfATextThatCouldNotBeUnpacked) {
  const Path path = write("text.gz", gzipped(some_text()).substr(0, 20000));
  EXPECT_THAT(test::refusal(Fault::corrupt, [&] { (void)unpacked_text(files_, path, unpack_); }), HasSubstr("text.gz"));
  EXPECT_THAT(unpacked(), IsEmpty());
  write("text.gz", gzipped(some_text()));
  os_.fail(test::Call::pwrite, 0, ENOSPC, true);
  EXPECT_THAT(test::refusal(Fault::io, [&] { (void)unpacked_text(files_, path, unpack_); }),
              AllOf(HasSubstr("unpacked"), HasSubstr("no space left")));
  EXPECT_THAT(unpacked(), IsEmpty());
}

TEST_F(Compressed, SweepsWhatNobodyWritesToAnyMore) {
  Files::system().make_folders(unpack_.folder);
  const std::string dead = partial_name("unpacked.txt"), alive = partial_name("unpacked.txt");
  for (const std::string& name : {dead, alive, std::string("other")}) write("unpacked/" + name, "x");
  const utimbuf old{1000, 1000};
  for (const std::string& name : {dead, std::string("other")})
    ASSERT_EQ(::utime((unpack_.folder / name).c_str(), &old), 0);
  sweep_unpacked(files_, unpack_.folder);
  EXPECT_THAT(unpacked(), testing::UnorderedElementsAre(alive, "other"));
  sweep_unpacked(files_, folder_ / "none");
}

}  // namespace
}  // namespace argosy::data
