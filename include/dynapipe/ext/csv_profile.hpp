#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/profile.hpp>
#include <dynapipe/cost/profile_sound.hpp>
#include <dynapipe/ext/csv_reader.hpp>

/// Profiles from measured CSV tables of times, memory and parameters. Needs zlib.

namespace dynapipe {

namespace csv_detail {

/// `text`, a plain decimal number >= 0 with or without an exponent, times 10^6; halves round up. Exact: no binary
/// fraction is involved. -1 where it is no such number or the result is above 10^18.
[[nodiscard]] inline std::int64_t millionths(std::string_view text) {
  std::string digits;
  std::int64_t whole = 6;  // digits before the point of the result
  std::size_t at = 0;
  bool after_point = false;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.' && !after_point && !digits.empty()) {
      after_point = true;
    } else if (text[at] >= '0' && text[at] <= '9') {
      digits += text[at];
      whole += after_point ? 0 : 1;
    } else {
      return -1;
    }
  }
  if (digits.empty() || text[at - 1] == '.') return -1;
  if (at < text.size()) {
    at += text.substr(at + 1).starts_with('+') && !text.substr(at + 2).starts_with('-') ? 2 : 1;
    int exponent = 0;
    const auto [end, problem] = std::from_chars(text.data() + at, text.data() + text.size(), exponent);
    if (problem != std::errc{} || end != text.data() + text.size()) return -1;
    whole += exponent;
  }
  const std::size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
  digits.erase(0, zeros);
  whole -= static_cast<std::int64_t>(zeros);
  if (digits.empty() || whole < 0) return 0;
  if (whole > 18) return -1;
  const auto kept = static_cast<std::size_t>(whole);
  std::int64_t result = 0;
  for (std::size_t k = 0; k < kept; ++k)
    result = 10 * result + (k < digits.size() ? digits[k] - '0' : 0);
  return result + (kept < digits.size() && digits[kept] >= '5' ? 1 : 0);
}

/// A record of a table, its fields by the names of their columns.
template <std::size_t N>
class table_row {
 public:
  table_row(const detail::csv_records& records, const std::array<std::string_view, N>& names,
            const std::array<std::string_view, N>& fields)
      : records_{records}, names_{names}, fields_{fields} {}

  [[nodiscard]] std::size_t line() const { return records_.line(); }
  [[nodiscard]] std::string_view text(std::string_view column) const {
    return fields_[static_cast<std::size_t>(std::find(names_.begin(), names_.end(), column) - names_.begin())];
  }
  [[noreturn]] void refuse(std::string_view column, const std::string& why) const {
    records_.fail(std::string{column} + ' ' + why, text(column));
  }

  [[nodiscard]] std::int64_t integer(std::string_view column, std::int64_t least) const {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    const std::string_view field = text(column);
    std::int64_t value = 0;
    const auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (problem != std::errc{} || end != field.data() + field.size() || value < least || value > most)
      refuse(column, "must be a whole number in " + std::to_string(least) + "..2147483648 (2^31), is");
    return value;
  }
  /// The value in units a million times smaller: nanoseconds of milliseconds, bytes of megabytes.
  [[nodiscard]] std::int64_t in_millionths(std::string_view column) const {
    const std::int64_t value = millionths(text(column));
    if (value < 0) refuse(column, "must be a decimal number, not negative and not above 10^12, is");
    return value;
  }
  template <class Enum, std::size_t Count>
  [[nodiscard]] Enum word(std::string_view column, const name_table<Enum, Count>& names) const {
    if (const auto found = value_in(names, text(column))) return *found;
    std::string known;
    for (const auto& [value, name] : names)
      known += (known.empty() ? "" : ", ") + std::string{name};
    refuse(column, "must be one of " + known + ", is");
  }

 private:
  const detail::csv_records& records_;
  const std::array<std::string_view, N>& names_;
  const std::array<std::string_view, N>& fields_;
};

/// Calls `take` with each row of the table at `path`. Its header has all columns of `names`, in any order, and at most
/// `unused` beside them.
template <std::size_t N, class Take>
void read_table(const std::string& path, const std::array<std::string_view, N>& names, std::string_view unused,
                Take take) {
  const std::string text = detail::read_unpacked(path);
  detail::csv_records records{text, path};
  std::vector<std::string_view> found;
  if (!records.next(found)) records.fail("the file is empty");
  const std::size_t width = found.size();
  std::array<std::size_t, N> columns{};
  columns.fill(width);
  std::set<std::string_view> seen;
  for (std::size_t c = 0; c < width; ++c) {
    if (!seen.insert(found[c]).second) records.fail("a column is there twice", found[c]);
    const auto place = static_cast<std::size_t>(std::find(names.begin(), names.end(), found[c]) - names.begin());
    if (place < N)
      columns[place] = c;
    else if (unused.empty() || found[c] != unused)
      records.fail("column " + std::to_string(c + 1) + " is not known", found[c]);
  }
  for (std::size_t n = 0; n < N; ++n)
    if (columns[n] == width) records.fail("no column " + std::string{names[n]} + " in the header", found[0]);
  std::array<std::string_view, N> fields{};
  while (!records.only_empty_lines() && records.next(found)) {
    if (found.size() != width)
      records.fail(
          std::to_string(found.size()) + " fields where the header has " + std::to_string(width) + ", beginning",
          found.front());
    for (std::size_t n = 0; n < N; ++n)
      fields[n] = found[columns[n]];
    take(table_row<N>{records, names, fields});
  }
}

/// Layers as the tables call them, in the order of their kinds.
enum class table_layer : std::uint8_t { embedding, encoder, decoder, postprocess };
enum class table_pass : std::uint8_t { forward, backward };

inline constexpr name_table<table_layer, 4> table_layer_names{{{table_layer::embedding, "embedding"},
                                                               {table_layer::encoder, "encoder"},
                                                               {table_layer::decoder, "decoder"},
                                                               {table_layer::postprocess, "postprocess"}}};
inline constexpr name_table<table_layer, 3> measured_layer_names{
    {{table_layer::encoder, "encoder"}, {table_layer::decoder, "decoder"}, {table_layer::postprocess, "postprocess"}}};
inline constexpr name_table<table_pass, 2> table_pass_names{
    {{table_pass::forward, "forward"}, {table_pass::backward, "backward"}}};

/// What was measured, as the tables name it. Of an encoder or head only its own length counts.
struct table_key {
  table_layer layer = table_layer::encoder;
  recompute_mode recompute = recompute_mode::none;
  std::int64_t input = 0;
  std::int64_t target = 0;
  std::int64_t rows = 0;

  friend auto operator<=>(const table_key&, const table_key&) = default;
};

template <std::size_t N>
[[nodiscard]] table_key key_of(const table_row<N>& row) {
  table_key key{row.word("layer", measured_layer_names), row.word("recompute", recompute_names),
                row.integer("enc_seqlen", 1), row.integer("dec_seqlen", 0), row.integer("mbs", 1)};
  if (key.layer == table_layer::decoder && key.target == 0)
    row.refuse("dec_seqlen", "must be above 0 for a decoder, is");
  if (key.layer == table_layer::postprocess && key.target > 0) key.input = key.target;
  if (key.layer != table_layer::decoder) key.target = 0;
  return key;
}

[[nodiscard]] inline std::string describe(const table_key& key) {
  return "layer " + std::string{name_in(table_layer_names, key.layer)} + ", recompute " +
         std::string{to_string(key.recompute)} + ", enc_seqlen " + std::to_string(key.input) + ", dec_seqlen " +
         std::to_string(key.target) + ", mbs " + std::to_string(key.rows);
}

/// Values of one quantity, each with its line.
class repeats {
 public:
  void add(std::int64_t value, std::size_t line) { values_.emplace_back(value, line); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] std::size_t line() const { return values_.front().second; }

  /// The middle value, or the mean of the two in the middle with halves rounded up.
  [[nodiscard]] std::int64_t median() {
    std::sort(values_.begin(), values_.end());
    const std::size_t middle = values_.size() / 2;
    if (values_.size() % 2 == 1) return values_[middle].first;
    return (values_[middle - 1].first + values_[middle].first + 1) / 2;
  }
  /// @throws error naming the lines of two values that are more than 20 % apart.
  void require_agreement(const std::string& path, const char* column) const {
    const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
    if (!detail::disagree(least->first, most->first)) return;
    const auto [first, second] = std::minmax(least->second, most->second);
    const auto [low, high] = std::pair{in_units(least->first), in_units(most->first)};
    throw error{path + ": line " + std::to_string(second) + ": it measures the same as line " + std::to_string(first) +
                ", but their " + column + " disagree by more than 20 %: " + low + " (line " +
                std::to_string(least->second) + ") and " + high + " (line " + std::to_string(most->second) + ')'};
  }

 private:
  /// Millionths as a decimal number.
  [[nodiscard]] static std::string in_units(std::int64_t value) {
    std::string fraction = std::to_string(1'000'000 + value % 1'000'000).substr(1);
    fraction.erase(fraction.find_last_not_of('0') + 1);
    return std::to_string(value / 1'000'000) + (fraction.empty() ? "" : '.' + fraction);
  }

  std::vector<std::pair<std::int64_t, std::size_t>> values_;
};

struct table_times {
  repeats forward;
  repeats backward;
};
struct table_memory {
  repeats stored;
  repeats peak;
};

/// The three tables of one measurement.
struct table_paths {
  std::string time;
  std::string memory;
  std::string model_state;
  std::string name;  ///< what the file names have in common
};

[[nodiscard]] inline table_paths paths_beside(const std::string& time_path) {
  std::string stem = time_path;
  if (stem.ends_with(".gz")) stem.resize(stem.size() - 3);
  constexpr std::string_view ending = "_time.csv";
  if (!stem.ends_with(ending))
    throw error{time_path + ": a measured table is called NAME_time.csv or NAME_time.csv.gz"};
  stem.resize(stem.size() - ending.size());
  const auto beside = [&](const std::string& what) {
    const std::string plain = stem + '_' + what + ".csv";
    std::error_code unknown;
    if (std::filesystem::exists(plain, unknown)) return plain;
    if (std::filesystem::exists(plain + ".gz", unknown)) return plain + ".gz";
    throw error{time_path + ": its table of " + what + " is missing: neither " + plain + " nor " + plain +
                ".gz is there"};
  };
  return {time_path, beside("memory"), beside("model_state"), std::filesystem::path{stem}.filename().string()};
}

/// Reads the rows of one tensor-parallel degree.
class tables {
 public:
  tables(table_paths paths, std::int64_t tensor_parallel)
      : paths_{std::move(paths)}, tensor_parallel_{tensor_parallel} {
    read_times();
    read_memory();
    read_parameters();
  }

  [[nodiscard]] profile make() {
    profile p;
    p.device = paths_.name;
    p.type = dtype::fp16;
    p.tensor_parallel = tensor_parallel_;
    for (auto& [layer, values] : parameters_)
      p.parameters[static_cast<std::size_t>(kind_of(layer))] = bytes{values.median()};
    std::set<table_layer> layers;
    for (auto& [key, times] : times_) {
      layers.insert(key.layer);
      p.points.push_back(point_of(key, times));
    }
    for (const table_layer layer : layers)
      if (layer != table_layer::postprocess && !parameters_.contains(layer))
        throw error{paths_.model_state + ": no row of tp " + std::to_string(tensor_parallel_) + ", layer " +
                    std::string{name_in(table_layer_names, layer)}};
    for (auto& [key, memory] : memory_)
      if (!times_.contains(key)) fail(paths_.memory, memory.stored, key, "no times in " + paths_.time);
    return p;
  }

 private:
  [[noreturn]] static void fail(const std::string& path, const repeats& values, const table_key& key,
                                const std::string& what) {
    throw error{path + ": line " + std::to_string(values.line()) + ": " + describe(key) + ": " + what};
  }

  void read_times() {
    static constexpr std::array<std::string_view, 8> columns{"tp",         "recompute",  "layer", "pass",
                                                             "enc_seqlen", "dec_seqlen", "mbs",   "time_ms"};
    std::set<std::int64_t> degrees;
    read_table(paths_.time, columns, "tokens_per_ms", [&](const table_row<8>& row) {
      const table_key key = key_of(row);
      const table_pass pass = row.word("pass", table_pass_names);
      const std::int64_t time = row.in_millionths("time_ms");
      if (time == 0) row.refuse("time_ms", "must be above 0, is");
      if (time >= 1'000'000'000'000) row.refuse("time_ms", "is 1000 seconds or more: is the unit milliseconds? It is");
      encoder_decoder_ = encoder_decoder_ || key.layer == table_layer::decoder;
      degrees.insert(row.integer("tp", 1));
      if (row.integer("tp", 1) != tensor_parallel_) return;
      table_times& times = times_[key];
      (pass == table_pass::forward ? times.forward : times.backward).add(time, row.line());
    });
    if (!times_.empty()) return;
    std::string there;
    for (const std::int64_t degree : degrees)
      there += (there.empty() ? "" : ", ") + std::to_string(degree);
    throw error{paths_.time + ": no rows of tp " + std::to_string(tensor_parallel_) +
                (there.empty() ? "; it has no rows at all" : "; it has tp " + there)};
  }

  void read_memory() {
    static constexpr std::array<std::string_view, 8> columns{
        "tp", "recompute", "layer", "enc_seqlen", "dec_seqlen", "mbs", "stored_activation_mb", "peak_activation_mb"};
    read_table(paths_.memory, columns, "", [&](const table_row<8>& row) {
      const table_key key = key_of(row);
      const std::int64_t stored = row.in_millionths("stored_activation_mb");
      const std::int64_t peak = row.in_millionths("peak_activation_mb");
      if (row.integer("tp", 1) != tensor_parallel_) return;
      memory_[key].stored.add(stored, row.line());
      memory_[key].peak.add(peak, row.line());
    });
  }

  void read_parameters() {
    static constexpr std::array<std::string_view, 4> columns{"tp", "recompute", "layer", "param_mb"};
    read_table(paths_.model_state, columns, "", [&](const table_row<4>& row) {
      static_cast<void>(row.word("recompute", recompute_names));
      const table_layer layer = row.word("layer", table_layer_names);
      const std::int64_t size = row.in_millionths("param_mb");
      if (row.integer("tp", 1) == tensor_parallel_) parameters_[layer].add(size, row.line());
    });
  }

  [[nodiscard]] layer_kind kind_of(table_layer layer) const {
    switch (layer) {
      case table_layer::embedding: return layer_kind::embedding;
      case table_layer::encoder: return encoder_decoder_ ? layer_kind::encoder : layer_kind::decoder;
      case table_layer::decoder: return layer_kind::cross_decoder;
      case table_layer::postprocess: break;
    }
    return layer_kind::head;
  }

  [[nodiscard]] profile_point point_of(const table_key& key, table_times& times) {
    if (times.forward.empty()) fail(paths_.time, times.backward, key, "a backward without a forward");
    if (times.backward.empty()) fail(paths_.time, times.forward, key, "a forward without a backward");
    const auto memory = memory_.find(key);
    if (memory == memory_.end() && key.layer != table_layer::postprocess)
      fail(paths_.time, times.forward, key, "no memory in " + paths_.memory);
    // With an encoder and a decoder, each length of one is measured again for every length of the other.
    if (!encoder_decoder_ || key.layer == table_layer::decoder) {
      times.forward.require_agreement(paths_.time, "time_ms");
      times.backward.require_agreement(paths_.time, "time_ms");
      if (memory != memory_.end()) {
        memory->second.stored.require_agreement(paths_.memory, "stored_activation_mb");
        memory->second.peak.require_agreement(paths_.memory, "peak_activation_mb");
      }
    }
    profile_point point;
    point.kind = kind_of(key.layer);
    point.recompute = key.recompute;
    point.padded = {key.rows, key.input, key.target};
    point.forward = nanoseconds{times.forward.median()};
    point.backward = nanoseconds{times.backward.median()};
    if (memory != memory_.end()) {
      const bytes peak{memory->second.peak.median()};
      point.stored = bytes{memory->second.stored.median()};
      point.forward_peak = std::max(point.stored, peak);
      point.backward_peak = std::max(bytes{0}, peak - point.stored);
    }
    return point;
  }

  table_paths paths_;
  std::int64_t tensor_parallel_;
  bool encoder_decoder_ = false;
  std::map<table_key, table_times> times_;
  std::map<table_key, table_memory> memory_;
  std::map<table_layer, repeats> parameters_;
};

}  // namespace csv_detail

/// The profile of measured CSV tables, for one tensor-parallel degree. `time_path` is `NAME_time.csv` or
/// `NAME_time.csv.gz`; `NAME_memory` and `NAME_model_state` stand beside it, plain or gzipped (plain is taken first).
///
/// Columns, in any order: `tp,recompute,layer,pass,enc_seqlen,dec_seqlen,mbs,time_ms` (and `tokens_per_ms`, which is
/// not read); `tp,recompute,layer,enc_seqlen,dec_seqlen,mbs,stored_activation_mb,peak_activation_mb`; and
/// `tp,recompute,layer,param_mb`. Milliseconds become nanoseconds and megabytes (10^6) bytes without binary fractions;
/// halves round up.
///
/// Layer `encoder` is an encoder where the table of times also has a `decoder`, and a decoder without cross-attention
/// where it has none; `decoder` is a `cross_decoder`, `postprocess` the head. An encoder reads `enc_seqlen`, a head
/// `dec_seqlen`, or `enc_seqlen` where that is 0. Repeats become their median: with an encoder and a decoder those of
/// the encoder and the head may differ at will; others must agree within 20 %. The head's memory may be missing, which
/// counts 0; embeddings have parameters only. A peak includes what is stored: it becomes `forward_peak`, and less what
/// is stored `backward_peak`. Parameters are the median over the recomputation modes.
///
/// The tables do not say which layer was measured, nor on what: sizes are those of `layer`, or 0 (unknown) without it;
/// `device` is `NAME`, `type` fp16. Points are sorted by kind, recomputation, lengths and rows. O(n log n).
///
/// @throws error naming the file, line, column and value at fault; the degrees that are there where `tensor_parallel`
/// is not; and as `require_sound(profile)`.
[[nodiscard]] inline profile load_profile_csv(const std::string& time_path, std::int64_t tensor_parallel,
                                              const model_spec& layer = {}) {
  profile p = csv_detail::tables{csv_detail::paths_beside(time_path), tensor_parallel}.make();
  p.hidden = layer.hidden;
  p.heads = layer.heads;
  p.kv_heads = layer.kv_heads;
  p.ffn = layer.ffn;
  p.gated = layer.gated;
  require_sound(p, time_path);
  return p;
}

}  // namespace dynapipe
