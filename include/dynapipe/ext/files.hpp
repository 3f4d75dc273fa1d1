#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

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

/// Puts `text` into the file at `path`, all of it or nothing: it is written beside the file and moved over it, so that
/// a reader never meets half a file. A link is followed; what is no regular file (a pipe, a terminal) is written
/// directly.
///
/// @throws error naming the path and the system's reason; no temporary file is left behind, an old file stays as it
/// was.
inline void write_file(const std::filesystem::path& path, std::string_view text) {
  const auto fail = [&](int reason) { throw error{path.string() + ": cannot be written: " + std::strerror(reason)}; };
  const auto put = [&](std::FILE* file) {
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const int reason = errno;
    return std::fclose(file) == 0 ? (whole ? 0 : reason) : errno;
  };
  std::error_code unknown;
  const std::filesystem::file_status there = std::filesystem::status(path, unknown);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) fail(errno);
    if (const int reason = put(file)) fail(reason);
    return;
  }

  std::filesystem::path target = path;
  if (std::filesystem::exists(there))
    if (std::filesystem::path real = std::filesystem::canonical(path, unknown); !unknown) target = std::move(real);
  std::filesystem::path beside;
  std::FILE* file = nullptr;
  for (int attempt = 0; file == nullptr; ++attempt) {
    beside = target;
    beside += ".part" + std::to_string(attempt);
    file = std::fopen(beside.c_str(), "wbx");
    if (file == nullptr && (errno != EEXIST || attempt == 999)) fail(errno);
  }
  int reason = put(file);
  if (reason == 0 && std::rename(beside.c_str(), target.c_str()) != 0) reason = errno;
  if (reason != 0) {
    std::remove(beside.c_str());
    fail(reason);
  }
}

}  // namespace dynapipe
