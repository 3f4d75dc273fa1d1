#pragma once

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <zlib.h>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/error.hpp>

/// Reading lengths files: how many tokens every sample of a data set has. Needs zlib.

namespace dynapipe {

/// One sample: tokens of its input and of its target, 0 to `longest_length`, not both 0.
struct length_row {
  std::uint32_t task = 0;  ///< index into `lengths_table::tasks`
  std::int64_t input = 0;
  std::int64_t target = 0;

  friend constexpr bool operator==(const length_row&, const length_row&) = default;
};

/// A lengths file. Rows are in the file's order; the index of a row is its number in plans (`source_rows`).
struct lengths_table {
  std::vector<length_row> rows;
  std::vector<std::string> tasks;  ///< each name once, by first appearance

  [[nodiscard]] const std::string& task(const length_row& row) const { return tasks[row.task]; }

  friend bool operator==(const lengths_table&, const lengths_table&) = default;
};

namespace detail {

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

/// Column of each of a lengths file's fields, by the header.
inline std::array<std::size_t, 3> lengths_columns(const csv_records& records,
                                                  const std::vector<std::string_view>& header) {
  static constexpr std::array<std::string_view, 3> names{"task", "input_tokens", "target_tokens"};
  std::array<std::size_t, 3> columns{};
  for (std::size_t n = 0; n < names.size(); ++n) {
    columns[n] = header.size();
    for (std::size_t c = header.size(); c-- > 0;)
      if (header[c] == names[n]) columns[n] = c;
    if (columns[n] == header.size()) records.fail("no column " + std::string{names[n]} + " in the header", header[0]);
  }
  for (std::size_t c = 0; c < header.size(); ++c)
    if (c != columns[0] && c != columns[1] && c != columns[2])
      records.fail("column " + std::to_string(c + 1) + " is none of task,input_tokens,target_tokens, or there twice",
                   header[c]);
  return columns;
}

inline std::int64_t token_count(const csv_records& records, std::string_view column, std::string_view field) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), value);
  const bool whole = end == field.data() + field.size() && !field.empty();
  const auto fail = [&](const char* what) { records.fail(std::string{column} + " " + what, field); };
  if (!whole || problem == std::errc::invalid_argument) fail("is no whole number");
  if (field.front() == '-') fail("is negative");
  if (problem == std::errc::result_out_of_range || value > longest_length) fail("is above 2147483648 (2^31)");
  return value;
}

}  // namespace detail

/// Reads a lengths table from text; `name` stands in errors for the file.
///
/// Form: the header `task,input_tokens,target_tokens` (in any order), then one row for each sample; fields may be
/// quoted (RFC 4180); lines end with LF or CRLF; a byte order mark and empty lines at the end are accepted. Counts are
/// plain decimal digits. Complexity: linear. Throws `error` naming `name`, the line (from 1; of a record over several
/// lines the first) and the text at fault: no header or an unknown column, no rows, a row of another width, broken
/// quotes, and a count that is no whole number, negative, above 2^31, or 0 for both.
[[nodiscard]] inline lengths_table parse_lengths(std::string_view text, std::string_view name) {
  detail::csv_records records{text, name};
  std::vector<std::string_view> fields;
  if (!records.next(fields)) records.fail("the file is empty");
  const auto [task_column, input_column, target_column] = detail::lengths_columns(records, fields);
  lengths_table table;
  std::unordered_map<std::string, std::uint32_t> known;
  std::string task;
  std::uint32_t task_index = 0;
  while (!records.only_empty_lines() && records.next(fields)) {
    if (fields.size() != 3)
      records.fail(std::to_string(fields.size()) + " fields where the header has 3, beginning", fields.front());
    const length_row lengths{.task = 0,
                             .input = detail::token_count(records, "input_tokens", fields[input_column]),
                             .target = detail::token_count(records, "target_tokens", fields[target_column])};
    if (lengths.input == 0 && lengths.target == 0)
      records.fail("a sample without any token, of task", fields[task_column]);
    if (table.tasks.empty() || fields[task_column] != task) {
      task = fields[task_column];
      const auto [entry, is_new] = known.emplace(task, static_cast<std::uint32_t>(table.tasks.size()));
      if (is_new) table.tasks.push_back(task);
      task_index = entry->second;
    }
    table.rows.push_back(lengths);
    table.rows.back().task = task_index;
  }
  if (table.rows.empty()) records.fail("no rows after the header");
  return table;
}

/// Reads a lengths file, plain or gzipped (told by content, not by name); the form is that of `parse_lengths`.
///
/// Throws as `parse_lengths`, and `error` naming the file where it is missing, a directory, unreadable, or damaged or
/// cut gzip data.
[[nodiscard]] inline lengths_table read_lengths(const std::string& path) {
  return parse_lengths(detail::read_unpacked(path), path);
}

}  // namespace dynapipe
