#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zlib.h>

#include <dynapipe/core/error.hpp>

/// Records of CSV files, plain or gzipped: what the readers of tables share. Needs zlib.

namespace dynapipe::detail {

/// One table in the text form of RFC 4180, split into records of fields.
class csv_records {
 public:
  csv_records(std::string_view text, std::string_view name) : text_{text}, name_{name} {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }

  /// The fields of the next record, or false at the end of the text.
  bool next(std::vector<std::string_view>& fields) {
    if (at_ == text_.size()) return false;
    line_ = next_line_;
    fields.clear();
    unquoted_used_ = 0;
    while (true) {
      fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted_field() : plain_field());
      if (at_ == text_.size()) return true;
      if (text_[at_++] == '\n') {
        ++next_line_;
        return true;
      }
    }
  }

  /// The line, from 1, where the record that was read last begins.
  [[nodiscard]] std::size_t line() const { return line_; }

  /// Whether nothing but empty lines is left.
  [[nodiscard]] bool only_empty_lines() const { return text_.find_first_not_of("\r\n", at_) == std::string_view::npos; }

  /// Throws `error` naming the file, the line where the record begins, and the text at fault.
  [[noreturn]] void fail(const std::string& what, std::string_view at_fault) const {
    fail(what + ": " + shown(at_fault));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw error{std::string{name_} + ": line " + std::to_string(line_) + ": " + what};
  }

  /// Text from a file, fit for one line of an error message.
  [[nodiscard]] static std::string shown(std::string_view text) {
    constexpr std::size_t longest = 60;
    std::string result{"\""};
    for (const char c : text.substr(0, longest))
      result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    return result + (text.size() > longest ? "\"..." : "\"");
  }

 private:
  /// Up to a comma, the end of a line (without a carriage return before it) or of the text.
  std::string_view plain_field() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n')
      ++at_;
    std::string_view field = text_.substr(begin, at_ - begin);
    if ((at_ == text_.size() || text_[at_] == '\n') && field.ends_with('\r')) field.remove_suffix(1);
    if (field.find('"') != std::string_view::npos) fail("a quote inside a field that is not quoted", field);
    return field;
  }

  std::string_view quoted_field() {
    const std::size_t begin = at_;
    bool doubled = false;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++next_line_;
      if (text_[at_] != '"') continue;
      if (text_.substr(at_ + 1, 1) != "\"") break;
      doubled = true;
      ++at_;
    }
    if (at_ == text_.size()) fail("a quote is not closed", text_.substr(begin));
    const std::string_view inside = text_.substr(begin + 1, at_ - begin - 1);
    const std::string_view after = plain_tail();
    if (!after.empty()) fail("text after a closing quote", after);
    return doubled ? without_doubled_quotes(inside) : inside;
  }

  std::string_view plain_tail() {
    ++at_;
    return plain_field();
  }

  std::string_view without_doubled_quotes(std::string_view inside) {
    if (unquoted_used_ == unquoted_.size()) unquoted_.emplace_back();
    std::string& plain = unquoted_[unquoted_used_++];
    plain.clear();
    for (std::size_t i = 0; i < inside.size(); ++i) {
      plain += inside[i];
      if (inside[i] == '"') ++i;
    }
    return plain;
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t next_line_ = 1;
  std::deque<std::string> unquoted_;  // of the current record; a deque, because fields view into it
  std::size_t unquoted_used_ = 0;
};

class gz_reader {
 public:
  explicit gz_reader(const std::string& path) : file_{gzopen(path.c_str(), "rb")} {}
  gz_reader(const gz_reader&) = delete;
  gz_reader& operator=(const gz_reader&) = delete;
  ~gz_reader() {
    if (file_ != nullptr) gzclose_r(file_);
  }

  [[nodiscard]] gzFile file() const { return file_; }
  int close() { return gzclose_r(std::exchange(file_, nullptr)); }

 private:
  gzFile file_;
};

/// The whole text of a file, unpacked where it is gzipped (told by its first two bytes).
inline std::string read_unpacked(const std::string& path) {
  const auto fail = [&](const std::string& why) { throw error{path + ": cannot be read: " + why}; };
  const std::string damaged = "damaged or cut gzip data";
  errno = ENOMEM;
  gz_reader reader{path};
  if (reader.file() == nullptr) fail(std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> block{};
  int got = 0;
  while ((got = gzread(reader.file(), block.data(), static_cast<unsigned>(block.size()))) > 0)
    text.append(block.data(), static_cast<std::size_t>(got));
  if (got < 0) {
    const int reason = errno;
    int status = Z_OK;
    gzerror(reader.file(), &status);
    fail(status == Z_ERRNO ? std::strerror(reason) : damaged);
  }
  if (reader.close() != Z_OK) fail(damaged);
  return text;
}

}  // namespace dynapipe::detail
