#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/file.hpp"
#include "core/hash.hpp"

/// Texts that are compressed with gzip (RFC 1952) or zstd (RFC 8878), recognized by their first bytes. Members of gzip
/// and frames of zstd that follow each other are one text.
namespace argosy::data {

enum class Compression { none, gzip, zstd };
[[nodiscard]] Compression compression_of(Bytes first_bytes);
[[nodiscard]] Compression compression_of(const Files& files, const Path& path);

/// How large an unpacked text may be; absent: 1000 times the compressed size and 1 GiB.
using UnpackedLimit = std::optional<std::int64_t>;

/// Where the texts of compressed files are left, and how large they may be.
struct UnpackSettings {
  Path folder{};  // empty: they are not left anywhere
  UnpackedLimit limit{};
};

/// Reads a compressed file from its beginning, with buffers of fixed size in memory. One thread.
class Unpacker {
 public:
  Unpacker(File file, Compression compression, UnpackedLimit limit);
  Unpacker(Unpacker&&) noexcept;
  ~Unpacker();

  /// Fills `to` with the next bytes of the text and returns their number, which is smaller than `to` only at the end.
  /// Throws Error{corrupt} for a damaged or truncated file, saying how far it was read, Error{data} for a text above
  /// the limit.
  [[nodiscard]] std::size_t read(std::span<char> to);
  /// Digest of the compressed file; after its end.
  [[nodiscard]] Digest packed_digest() const { return packed_.digest(); }

 private:
  struct Stream;
  struct Gzip;
  struct Zstd;
  /// The next piece of the file, when the stream has used the one before; false at the end of the file.
  bool fill();
  [[noreturn]] void refuse(const std::string& got) const;

  File file_;
  std::unique_ptr<Stream> stream_;
  Hasher packed_;
  std::uint64_t limit_bytes_, read_bytes_ = 0, unpacked_bytes_ = 0;
  std::string input_;
  std::size_t used_ = 0;  // of input_
};

/// The file of a text that has this digest when compressed, in a folder of unpacked texts.
[[nodiscard]] Path unpacked_path(const Path& folder, const Digest& packed);

/// Writes an unpacked text. `produce` hands pieces of it to its argument and returns the digest of the compressed file.
/// Readers see the whole text or none; of several writers of one text each may win. Throws Error{io}.
Path write_unpacked(const Files& files, const Path& folder,
                    const std::function<Digest(const std::function<void(std::span<const char>)>&)>& produce);

/// The path itself if the file is not compressed. Otherwise the path of its text in settings.folder, which is made if
/// it is not there. Any rank, any number at once. Throws Error{data, corrupt, io}.
[[nodiscard]] Path unpacked_text(const Files& files, const Path& path, const UnpackSettings& settings);

/// Removes what killed ones were writing in a folder of unpacked texts: parts that nobody has written to for an hour.
void sweep_unpacked(const Files& files, const Path& folder);

}  // namespace argosy::data
