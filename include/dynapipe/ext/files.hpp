#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <dynapipe/core/error.hpp>

namespace dynapipe {

/// The bytes of the file at `path`; pipes and devices are read to their end.
///
/// @throws error naming the path and the system's reason, where it cannot be read.
[[nodiscard]] inline std::string read_file(const std::filesystem::path& path) {
  const auto fail = [&] { throw error{path.string() + ": cannot be read: " + std::strerror(errno)}; };
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) fail();
  std::string all;
  std::size_t used = 0;
  do {
    all.resize(used + (used < (1U << 16) ? 1U << 16 : used));
    used += std::fread(all.data() + used, 1, all.size() - used, file);
  } while (used == all.size());
  const bool broken = std::ferror(file) != 0;
  const int reason = errno;
  std::fclose(file);
  errno = reason;
  if (broken) fail();
  all.resize(used);
  return all;
}

/// A text on its way into a file: written beside it, and moved over it by `commit`, so that a reader never meets half a
/// file. Several files can be staged before any of them is changed. A link is followed; what is no regular file (a
/// pipe, a terminal) is written directly, by `commit`.
class staged_file {
 public:
  /// @throws error naming the path and the system's reason, where nothing can be written there.
  staged_file(const std::filesystem::path& path, std::string_view text) : path_{path} {
    std::error_code unknown;
    const std::filesystem::file_status there = std::filesystem::status(path, unknown);
    if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
      direct_ = std::fopen(path.c_str(), "wb");
      if (direct_ == nullptr) fail(errno);
      text_ = text;
      return;
    }
    target_ = path;
    if (std::filesystem::exists(there))
      if (std::filesystem::path real = std::filesystem::canonical(path, unknown); !unknown) target_ = std::move(real);
    std::FILE* file = nullptr;
    for (int attempt = 0; file == nullptr; ++attempt) {
      beside_ = target_;
      beside_ += ".part" + std::to_string(attempt);
      file = std::fopen(beside_.c_str(), "wbx");
      if (file == nullptr && (errno != EEXIST || attempt == 999)) fail(errno);
    }
    if (const int reason = put(file, text)) {
      std::remove(beside_.c_str());
      fail(reason);
    }
  }
  staged_file(const staged_file&) = delete;
  staged_file& operator=(const staged_file&) = delete;
  /// Leaves nothing behind where it was not committed.
  ~staged_file() {
    if (direct_ != nullptr) std::fclose(direct_);
    if (!beside_.empty()) std::remove(beside_.c_str());
  }

  /// @throws error naming the path and the system's reason; the old file stays as it was.
  void commit() {
    int reason = 0;
    if (direct_ != nullptr) {
      reason = put(std::exchange(direct_, nullptr), text_);
    } else if (std::rename(beside_.c_str(), target_.c_str()) != 0) {
      reason = errno;
    } else {
      beside_.clear();
    }
    if (reason != 0) fail(reason);
  }

 private:
  [[noreturn]] void fail(int reason) const {
    throw error{path_.string() + ": cannot be written: " + std::strerror(reason)};
  }
  static int put(std::FILE* file, std::string_view text) {
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const int reason = errno;
    return std::fclose(file) == 0 ? (whole ? 0 : reason) : errno;
  }

  std::filesystem::path path_;
  std::filesystem::path target_;
  std::filesystem::path beside_;
  std::FILE* direct_ = nullptr;
  std::string text_;
};

/// Puts `text` into the file at `path`, all of it or nothing; see `staged_file`.
///
/// @throws error naming the path and the system's reason; no temporary file is left behind, an old file stays as it
/// was.
inline void write_file(const std::filesystem::path& path, std::string_view text) { staged_file{path, text}.commit(); }

}  // namespace dynapipe
