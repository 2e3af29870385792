#include "data/compressed.hpp"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file_name.hpp"

namespace argosy::data {
namespace {

constexpr std::size_t piece_bytes = 1U << 20;
constexpr std::array gzip_magic{std::byte{0x1f}, std::byte{0x8b}};
constexpr std::array zstd_magic{std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f}, std::byte{0xfd}};

bool begins_with(Bytes bytes, Bytes magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

}  // namespace

Compression compression_of(Bytes first_bytes) {
  if (begins_with(first_bytes, gzip_magic)) return Compression::gzip;
  return begins_with(first_bytes, zstd_magic) ? Compression::zstd : Compression::none;
}

Compression compression_of(const Files& files, const Path& path) {
  File file = files.open(path);
  std::array<std::byte, zstd_magic.size()> first{};
  const std::size_t count = file.read(first);
  return compression_of(Bytes{first}.first(count));
}

/// What decompresses.
struct Unpacker::Stream {
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;
  struct Step {
    std::size_t used = 0, made = 0;
    std::string error{};
  };
  /// Takes from `from` and puts into `to`.
  virtual Step step(std::string_view from, std::span<char> to) = 0;
  /// Whether the file may end here: after a member or frame.
  [[nodiscard]] bool is_complete() const { return complete_; }

 protected:
  bool complete_ = false;
};

struct Unpacker::Gzip final : Stream {
  z_stream stream{};

  Gzip() {
    constexpr int gzip_alone = 31;  // the largest window, 15, and 16 for the header of gzip
    ARGOSY_CHECK(inflateInit2(&stream, gzip_alone) == Z_OK, "inflateInit2");
  }
  ~Gzip() override { inflateEnd(&stream); }
  Step step(std::string_view from, std::span<char> to) override {
    if (std::exchange(complete_, false)) inflateReset(&stream);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
    stream.avail_in = static_cast<uInt>(from.size());
    stream.next_out = reinterpret_cast<Bytef*>(to.data());
    stream.avail_out = static_cast<uInt>(std::min<std::size_t>(to.size(), std::numeric_limits<uInt>::max()));
    const uInt room = stream.avail_out;
    const int result = inflate(&stream, Z_NO_FLUSH);
    complete_ = result == Z_STREAM_END;
    Step step{from.size() - stream.avail_in, room - stream.avail_out};
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      step.error = stream.msg != nullptr ? stream.msg : zError(result);
    return step;
  }
};

struct Unpacker::Zstd final : Stream {
  struct Free {
    void operator()(ZSTD_DStream* freed) const { ZSTD_freeDStream(freed); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream{ZSTD_createDStream()};

  Step step(std::string_view from, std::span<char> to) override {
    ZSTD_inBuffer input{from.data(), from.size(), 0};
    ZSTD_outBuffer output{to.data(), to.size(), 0};
    const std::size_t result = ZSTD_decompressStream(stream.get(), &output, &input);
    complete_ = result == 0;
    return {input.pos, output.pos, ZSTD_isError(result) != 0 ? ZSTD_getErrorName(result) : ""};
  }
};

Unpacker::Unpacker(File file, Compression compression, UnpackedLimit limit) : file_(std::move(file)) {
  constexpr std::uint64_t most_ratio = 1000, free_bytes = 1ULL << 30;
  limit_bytes_ = limit ? static_cast<std::uint64_t>(*limit) : most_ratio * file_.stat().size_bytes + free_bytes;
  if (compression == Compression::gzip)
    stream_ = std::make_unique<Gzip>();
  else
    stream_ = std::make_unique<Zstd>();
}
Unpacker::Unpacker(Unpacker&&) noexcept = default;
Unpacker::~Unpacker() = default;

bool Unpacker::fill() {
  input_.resize(piece_bytes);
  input_.resize(file_.read(as_writable_bytes(std::span{input_})));
  used_ = 0;
  read_bytes_ += input_.size();
  packed_.update(input_);
  return !input_.empty();
}

void Unpacker::refuse(const std::string& got) const {
  throw_error(Fault::corrupt, file_.path().string(), "a whole compressed file",
              fmt::format("{} after {} bytes of the file and {} bytes of text", got,
                          read_bytes_ - (input_.size() - used_), unpacked_bytes_),
              "restore the file");
}

std::size_t Unpacker::read(std::span<char> to) {
  std::size_t count = 0;
  while (count < to.size()) {
    if (used_ == input_.size() && !fill() && stream_->is_complete()) break;
    const bool at_end = input_.empty();
    const Stream::Step step = stream_->step(std::string_view{input_}.substr(used_), to.subspan(count));
    used_ += step.used;
    count += step.made;
    unpacked_bytes_ += step.made;
    if (!step.error.empty()) refuse(fmt::format("damage ({})", step.error));
    if (at_end && step.made == 0) refuse("its end");
    if (unpacked_bytes_ > limit_bytes_)
      throw_error(Fault::data, file_.path().string(),
                  fmt::format("a text of at most {} bytes (data.unpacked_limit)", limit_bytes_), "a longer one",
                  "check the file, or raise data.unpacked_limit");
  }
  return count;
}

Path unpacked_path(const Path& folder, const Digest& packed) { return folder / (packed.hex() + ".txt"); }

Path write_unpacked(const Files& files, const Path& folder,
                    const std::function<Digest(const std::function<void(std::span<const char>)>&)>& produce) {
  files.make_folders(folder);
  const Path partial = folder / partial_name("unpacked.txt");
  try {
    File file = files.create(partial);
    std::uint64_t at = 0;
    const Digest packed = produce([&](std::span<const char> piece) {
      file.write_at(as_bytes(piece), at);
      at += piece.size();
    });
    file.sync();
    file.close();
    Path path = unpacked_path(folder, packed);
    files.rename(partial, path);
    files.sync_folder(folder);
    return path;
  } catch (...) {
    try {
      files.remove(partial);
    } catch (const Error&) {  // sweep_unpacked() removes it later
    }
    throw;
  }
}

Path unpacked_text(const Files& files, const Path& path, const UnpackSettings& settings) {
  const Compression compression = compression_of(files, path);
  if (compression == Compression::none) return path;
  Hasher hasher;
  File file = files.open(path);
  std::string piece(piece_bytes, '\0');
  while (const std::size_t count = file.read(as_writable_bytes(std::span{piece})))
    hasher.update(std::string_view{piece}.substr(0, count));
  if (Path known = unpacked_path(settings.folder, hasher.digest()); files.exists(known)) return known;
  return write_unpacked(files, settings.folder, [&](const auto& take) {
    Unpacker unpacker{files.open(path), compression, settings.limit};
    while (const std::size_t count = unpacker.read(piece)) take(std::span{piece}.first(count));
    return unpacker.packed_digest();
  });
}

void sweep_unpacked(const Files& files, const Path& folder) {
  constexpr double dead_after_s = 3600;
  if (!files.exists(folder)) return;
  const double now_s = Clock{}.wall_s();
  for (const std::string& name : files.list(folder)) {
    if (name_of_partial(name) != "unpacked.txt") continue;
    const std::optional<FileStat> stat = files.stat(folder / name);
    if (stat && stat->is_regular && now_s - static_cast<double>(stat->mtime_ns) * 1e-9 > dead_after_s)
      files.remove(folder / name);
  }
}

}  // namespace argosy::data
