#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/ext/csv_reader.hpp>

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
