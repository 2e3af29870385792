#include "core/output_file.hpp"

#include "core/file_name.hpp"

namespace argosy {

OutputFile::OutputFile(const Files& files, Path path)
    : files_(files),
      path_(files.follow_links(path)),
      partial_(path_.parent_path() / partial_name(path_.filename().string())) {
  const auto facts = files_.stat(path_);
  if (facts && !facts->is_regular) {
    throw Error{Fault::usage,
                {.wanted = "a regular file",
                 .got = facts->is_directory ? "a folder" : "a pipe, a socket or a device",
                 .where = path.string(),
                 .remedy = "name a regular file or a new one"}};
  }
  file_ = files_.create(partial_);
}

OutputFile::~OutputFile() {
  if (!committed_) files_.os().unlink(partial_.c_str());
}

void OutputFile::commit() {
  file_.sync();
  file_.close();
  files_.rename(partial_, path_);
  committed_ = true;
  files_.sync_folder(path_.parent_path());
}

}  // namespace argosy
