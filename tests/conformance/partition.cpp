#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/partition_bound.hpp>
#include <dynapipe/batch/range_partition.hpp>
#include <dynapipe/batch/rows.hpp>
#include <dynapipe/core/error.hpp>

#include "kinds.hpp"

namespace conformance {

namespace {

using dynapipe::nanoseconds;
using dynapipe::shape;
using nlohmann::json;

double number(const json& of, const char* key) {
  const json& value = of.at(key);
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (!value.is_number() || !(value.get<double>() >= 0))
    throw dynapipe::error{std::string{key} + " must be a number of at least 0, it is " + value.dump()};
  return value.get<double>();
}

std::int64_t integer(const json& of, const char* key, std::int64_t least) {
  const json& value = of.at(key);
  if (!value.is_number_integer()) throw dynapipe::error{std::string{key} + " is no integer: " + value.dump()};
  dynapipe::require_within("", key, value.get<std::int64_t>(), least, 1'000'000'000);
  return value.get<std::int64_t>();
}

/// A cost of rows that are alike: constant + rows * row.
struct line {
  double constant = 0;
  double row = 0;
};

/// One case: samples, the costs of a layer, and how layers make a stage.
class test_problem {
 public:
  explicit test_problem(const json& test_case) {
    const json& cost = test_case.at("cost");
    for (const auto& [key, place] : {std::pair{"a", &a_}, {"b", &b_}, {"c", &c_}, {"d", &d_}, {"e", &e_}, {"p", &p_}})
      *place = number(cost, key);
    stages_ = integer(test_case, "n_stages", 1);
    replicas_ = integer(test_case, "dp_size", 1);
    layers_ = static_cast<double>(integer(test_case, "n_layers_per_stage", 1));
    chunks_ = integer(test_case, "n_chunks_per_device", 1);
    stored_limit_ = number(test_case, "per_mb_stored_limit");
    peak_limit_ = number(test_case, "peak_limit");
    packs_ = test_case.value("enable_packing", false);
    shapes_ = {.padding_multiple = integer(test_case, "round_seqlen_multiple", 1),
               .separator_tokens = integer(test_case, "len_pack_sep_tokens", 0),
               .extra_decoder_tokens = integer(test_case, "len_decoder_additional_tokens", 0),
               .sequence_offset = integer(test_case, "seqlen_offset", 0)};
    bool targets = false;
    for (const json& sample : test_case.at("samples")) {
      if (!sample.is_array() || sample.size() != 2)
        throw dynapipe::error{"a sample is no [input, target]: " + sample.dump()};
      for (const json& length : sample)
        if (!length.is_number_integer() || length.get<std::int64_t>() < 0)
          throw dynapipe::error{"sample " + std::to_string(samples_.size()) + " has the length " + length.dump()};
      samples_.push_back({sample[0].get<std::int64_t>(), sample[1].get<std::int64_t>(), 0});
      targets = targets || samples_.back().target > 0;
    }
    for (dynapipe::sample_lengths& s : samples_) {
      s.input = std::max<std::int64_t>(0, s.input - shapes_.sequence_offset);
      s.target = targets ? s.target + shapes_.extra_decoder_tokens : 0;
    }
  }

  [[nodiscard]] json solve() const {
    const auto begin = std::chrono::steady_clock::now();
    if (samples_.empty()) throw dynapipe::infeasible{"there is no sample to cut", {}, {}};
    const std::int64_t unit = choose_unit();
    const auto time = [&](const shape& s) { return scaled_time(s, unit); };
    const dynapipe::partition_options options{
        .devices = stages_, .replicas = replicas_, .stages_per_device = chunks_, .convex_rows = true};
    const std::optional<dynapipe::partition_result> cut =
        packs_ ? solve_packed(unit, options) : dynapipe::partition(samples_, shapes_, time, options);
    if (!cut) refuse();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;

    double t_max = 0;
    double sum = 0;
    for (std::size_t m = 0; m < cut->cuts.size(); ++m) {
      const std::size_t end = m + 1 < cut->cuts.size() ? cut->cuts[m + 1] : samples_.size();
      const double t = exact_time(shape_of(cut->cuts[m], end - cut->cuts[m]));
      t_max = std::max(t_max, t);
      sum += t;
    }
    const double objective =
        static_cast<double>(stages_ - 1) * t_max / static_cast<double>(chunks_) + sum / static_cast<double>(replicas_);
    // Rows of several samples bear less than a sample alone does: there the work of the longest sample is all we know.
    const double bound =
        packs_ ? alone_bound()
               : std::ldexp(static_cast<double>(*dynapipe::partition_bound(samples_, shapes_, time, options)) /
                                static_cast<double>(chunks_ * replicas_),
                            -static_cast<int>(unit));
    return {{"feasible", true},
            {"objective", objective},
            {"t_max", t_max},
            {"cut_points", cut->cuts},
            {"lower_bound", std::min(bound, objective)},
            {"seconds", taken.count()}};
  }

 private:
  [[nodiscard]] double whole_chunks() const { return static_cast<double>(chunks_ / 2); }

  /// Time on the encoder's and the decoder's side of a stage.
  [[nodiscard]] std::pair<line, line> sides(const shape& s) const {
    const auto x = static_cast<double>(s.input);
    const auto y = static_cast<double>(s.target);
    const auto layer = [&](double length) {
      return line{3 * layers_ * a_, 3 * layers_ * (b_ * length + c_ * length * length)};
    };
    if (s.target == 0) {
      line only = layer(x);
      only.row += 3 * p_ * x;
      return {only, {}};
    }
    line decoder = layer(y + 0.5 * x);
    decoder.row += 3 * p_ * y;
    return {layer(x), decoder};
  }

  [[nodiscard]] double exact_time(const shape& s) const {
    const auto [encoder, decoder] = sides(s);
    const auto rows = static_cast<double>(s.rows);
    const double x = encoder.constant + rows * encoder.row;
    const double y = decoder.constant + rows * decoder.row;
    return chunks_ > 1 ? (x + y) * whole_chunks() : std::max(x, y);
  }

  [[nodiscard]] double alone_bound() const {
    double longest = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i)
      longest = std::max(longest, exact_time(shape_of(i, 1)));
    return static_cast<double>(stages_ - 1) * longest / static_cast<double>(chunks_) +
           longest / static_cast<double>(replicas_);
  }

  [[nodiscard]] bool fits(const shape& s) const {
    const auto rows = static_cast<double>(s.rows);
    const auto x = static_cast<double>(s.input);
    const double y = s.target > 0 ? static_cast<double>(s.target) + 0.5 * x : 0;
    const double stored = (chunks_ > 1 ? (x + y) * whole_chunks() : std::max(x, y)) * d_ * rows;
    const double peak = std::max(x, y) * e_ * rows;
    return stored * layers_ <= stored_limit_ && peak + stored * (layers_ - 1) <= peak_limit_;
  }

  /// In units of 2^-unit, each row rounded by itself, so that times are exactly convex in rows.
  [[nodiscard]] std::optional<nanoseconds> scaled_time(const shape& s, std::int64_t unit) const {
    if (!fits(s)) return std::nullopt;
    const auto of = [&](const line& side) {
      return std::llround(std::ldexp(side.constant, static_cast<int>(unit))) +
             s.rows * std::llround(std::ldexp(side.row, static_cast<int>(unit)));
    };
    const auto [encoder, decoder] = sides(s);
    return nanoseconds{chunks_ > 1 ? (of(encoder) + of(decoder)) * (chunks_ / 2) : std::max(of(encoder), of(decoder))};
  }

  /// Binary digits after the point: as many as leave the sum of all samples alone, and of all in one, below 2^56.
  [[nodiscard]] std::int64_t choose_unit() const {
    shape all;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const shape one = shape_of(i, 1);
      all = {all.rows + 1, std::max(all.input, one.input), std::max(all.target, one.target)};
    }
    const auto [encoder, decoder] = sides(all);
    const auto rows = static_cast<double>(all.rows);
    const double most = rows * (encoder.constant + encoder.row + decoder.constant + decoder.row) *
                        static_cast<double>(stages_ + chunks_);
    if (!(most < 0x1p100)) throw dynapipe::error{"the case's times are too large to be counted"};
    return 56 - (most > 0 ? std::ilogb(most) : 0);
  }

  [[nodiscard]] shape shape_of(std::size_t first, std::size_t count) const {
    shape s{static_cast<std::int64_t>(count), 0, 0};
    for (std::size_t i = first; i < first + count; ++i) {
      s.input = std::max(s.input, dynapipe::padded_length(samples_[i].input, shapes_));
      if (samples_[i].target > 0) s.target = std::max(s.target, dynapipe::padded_length(samples_[i].target, shapes_));
    }
    if (packs_) s.rows = static_cast<std::int64_t>(packed_rows(first, count, s));
    return s;
  }

  [[nodiscard]] std::size_t packed_rows(std::size_t first, std::size_t count, const shape& s) const {
    return dynapipe::pack_rows(std::span{samples_}.subspan(first, count), {s.input, s.target}, shapes_).rows();
  }

  [[nodiscard]] std::optional<dynapipe::partition_result> solve_packed(
      std::int64_t unit, const dynapipe::partition_options& options) const {
    return dynapipe::partition_ranges(
        samples_.size(),
        [&](std::size_t first, std::size_t count) { return scaled_time(shape_of(first, count), unit); }, options);
  }

  [[noreturn]] void refuse() const {
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const shape s = shape_of(i, 1);
      if (fits(s)) continue;
      throw dynapipe::infeasible{"sample " + std::to_string(i) + " alone, padded to " + std::to_string(s.input) +
                                     " + " + std::to_string(s.target) + " tokens, exceeds the limits of " +
                                     std::to_string(stored_limit_) + " stored and " + std::to_string(peak_limit_) +
                                     " at the peak",
                                 {},
                                 {}};
    }
    throw dynapipe::infeasible{"no cut keeps the limits", {}, {}};
  }

  double a_ = 0, b_ = 0, c_ = 0, d_ = 0, e_ = 0, p_ = 0;
  std::int64_t stages_ = 1;
  std::int64_t replicas_ = 1;
  std::int64_t chunks_ = 1;
  double layers_ = 1;
  double stored_limit_ = 0;
  double peak_limit_ = 0;
  bool packs_ = false;
  dynapipe::shape_options shapes_;
  std::vector<dynapipe::sample_lengths> samples_;
};

}  // namespace

json partition(const json& test_case, const options&) { return test_problem{test_case}.solve(); }

}  // namespace conformance
