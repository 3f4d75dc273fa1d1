#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/profile.hpp>

/// Whether a profile can be believed, and its repeated points made one.

namespace dynapipe {

namespace detail {

/// What was measured of a point, in the order of the profile's format. The first two are always measured; 0 in another
/// says that it was not.
inline constexpr auto profile_amount_names = [] {
  std::array<const char*, cost_amount_names.size()> names{};
  for (std::size_t a = 0; a < names.size(); ++a)
    names[a] = cost_amount_names[a].second.data();
  return names;
}();
inline constexpr std::size_t profile_times_always_measured = 2;

using profile_amounts = std::array<std::int64_t, profile_amount_names.size()>;

[[nodiscard]] constexpr profile_amounts amounts_of(const profile_point& point) {
  return {point.forward.value(),       point.backward.value(),     point.weight.value(),       point.stored.value(),
          point.weight_stored.value(), point.forward_peak.value(), point.backward_peak.value()};
}

constexpr void set_amounts(profile_point& point, const profile_amounts& amounts) {
  point.forward = nanoseconds{amounts[0]};
  point.backward = nanoseconds{amounts[1]};
  point.weight = nanoseconds{amounts[2]};
  point.stored = bytes{amounts[3]};
  point.weight_stored = bytes{amounts[4]};
  point.forward_peak = bytes{amounts[5]};
  point.backward_peak = bytes{amounts[6]};
}

/// Kind, recomputation and shape of a point: equal where two points measure the same.
using profile_key = std::array<std::int64_t, 9>;

[[nodiscard]] constexpr profile_key key_of(const profile_point& point) {
  const auto kind = static_cast<std::int64_t>(point.kind);
  const auto recompute = static_cast<std::int64_t>(point.recompute);
  const varlen_shape& v = point.packed;
  if (point.varlen)
    return {kind, recompute, 1, v.tokens, v.squares, v.samples, v.target_tokens, v.target_squares, v.cross_pairs};
  return {kind, recompute, 0, point.padded.rows, point.padded.input, point.padded.target, 0, 0, 0};
}

/// Whether one of two amounts >= 0 is more than 20 % above the other.
[[nodiscard]] constexpr bool disagree(std::int64_t a, std::int64_t b) {
  return static_cast<wide_int>(5) * std::max(a, b) > static_cast<wide_int>(6) * std::min(a, b);
}

/// "points[3] (decoder, recompute none, rows 1, input 512, target 0)".
template <class Lazy = void>
[[nodiscard]] std::string describe_point(const profile& p, std::size_t k) {
  const profile_point& point = p.points[k];
  std::string text = "points[" + std::to_string(k) + "] (" + std::string{to_string(point.kind)} + ", recompute " +
                     std::string{to_string(point.recompute)};
  const auto add = [&](const char* name, std::int64_t value) {
    text += std::string{", "} + name + ' ' + std::to_string(value);
  };
  if (point.varlen) {
    const varlen_shape& v = point.packed;
    add("tokens", v.tokens);
    add("squares", v.squares);
    add("samples", v.samples);
    if (v.target_tokens != 0 || v.target_squares != 0 || v.cross_pairs != 0) {
      add("target_tokens", v.target_tokens);
      add("target_squares", v.target_squares);
      add("cross_pairs", v.cross_pairs);
    }
  } else {
    add("rows", point.padded.rows);
    add("input", point.padded.input);
    add("target", point.padded.target);
  }
  return text + ')';
}

/// Calls `take` for each set of points that measure the same, with their numbers in order; sets come by kind,
/// recomputation and shape. O(n log n).
template <class Take>
void for_each_same(const profile& p, Take take) {
  std::vector<std::pair<profile_key, std::size_t>> keyed(p.points.size());
  for (std::size_t k = 0; k < keyed.size(); ++k)
    keyed[k] = {key_of(p.points[k]), k};
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::size_t> same;
  for (std::size_t k = 0; k < keyed.size(); ++k) {
    same.push_back(keyed[k].second);
    if (k + 1 < keyed.size() && keyed[k + 1].first == keyed[k].first) continue;
    take(std::span<const std::size_t>{same});
    same.clear();
  }
}

/// The checks of `require_sound(profile)`, each for a part of it.
template <class Lazy = void>
class profile_check {
 public:
  profile_check(const profile& p, const std::string& name) : p_{p}, name_{name} {}

  void layer() const {
    const bool unknown = p_.hidden == 0 && p_.heads == 0 && p_.kv_heads == 0 && p_.ffn == 0;
    if (!unknown) {
      within("layer.hidden", p_.hidden, 1, 1'000'000);
      within("layer.heads", p_.heads, 1, 1'000'000);
      within("layer.kv_heads", p_.kv_heads, 1, 1'000'000);
      within("layer.ffn", p_.ffn, 1, 100'000'000);
      if (p_.heads % p_.kv_heads != 0)
        fail("layer.heads (" + std::to_string(p_.heads) + ") must be a multiple of layer.kv_heads (" +
             std::to_string(p_.kv_heads) + ")");
    }
    within("tensor_parallel", p_.tensor_parallel, 1, unknown ? 1'000'000 : p_.heads);
    for (const auto& [kind, kind_name] : layer_kind_names)
      within("parameters_bytes." + std::string{kind_name}, p_.parameters_of(kind).value(), 0, most_bytes);
  }

  void point(std::size_t k) const {
    const profile_point& point = p_.points[k];
    if (point.varlen)
      varlen(k, point);
    else
      padded(k, point);
    const profile_amounts amounts = amounts_of(point);
    for (std::size_t a = 0; a < amounts.size(); ++a) {
      const bool is_time = a <= 2;
      const bool must_be = a < profile_times_always_measured && point.kind != layer_kind::embedding;
      if (point.out_of_memory && amounts[a] != 0)
        fail(k, std::string{"it ran out of memory, so "} + profile_amount_names[a] + " must be 0, it is " +
                    std::to_string(amounts[a]));
      if (amounts[a] < 0 || (amounts[a] == 0 && must_be && !point.out_of_memory))
        fail(k, std::string{profile_amount_names[a]} + (must_be ? " must be above 0" : " must not be negative") +
                    ", it is " + std::to_string(amounts[a]));
      if (amounts[a] > (is_time ? longest_ns - 1 : most_bytes))
        fail(k, std::string{profile_amount_names[a]} + " is " + std::to_string(amounts[a]) +
                    (is_time ? ", 1000 seconds or more: is the unit nanoseconds?"
                             : ", more than 2^50: is the unit bytes?"));
    }
    not_above(k, "weight_ns", point.weight.value(), "backward_ns", point.backward.value());
    not_above(k, "weight_stored_bytes", point.weight_stored.value(), "stored_bytes", point.stored.value());
    if (point.forward_peak > bytes{0})
      not_above(k, "stored_bytes", point.stored.value(), "forward_peak_bytes", point.forward_peak.value());
  }

  void repeats() const {
    for_each_same(p_, [&](std::span<const std::size_t> same) {
      for (const std::size_t k : same)
        if (p_.points[k].out_of_memory != p_.points[same[0]].out_of_memory)
          fail(same[0],
               "it measures the same as points[" + std::to_string(k) + "], but only one of them ran out of memory");
      for (std::size_t a = 0; a < profile_amount_names.size(); ++a)
        repeats_of(same, a);
    });
  }

  /// One point, or none that ran, does not show how costs grow.
  void enough() const {
    std::array<std::array<std::size_t, recompute_names.size()>, layer_kind_names.size()> shapes{};
    for_each_same(p_, [&](std::span<const std::size_t> same) {
      const profile_point& point = p_.points[same[0]];
      if (!point.out_of_memory)
        ++shapes[static_cast<std::size_t>(point.kind)][static_cast<std::size_t>(point.recompute)];
    });
    for (std::size_t k = 0; k < p_.points.size(); ++k) {
      const profile_point& point = p_.points[k];
      const std::size_t count = shapes[static_cast<std::size_t>(point.kind)][static_cast<std::size_t>(point.recompute)];
      if (count >= 2) continue;
      const std::string what =
          std::string{to_string(point.kind)} + " with recompute " + std::string{to_string(point.recompute)};
      fail(k, count == 1 ? "it is the only shape of " + what +
                               " that ran: one point tells nothing about how costs grow, measure at least 2 lengths"
                         : "no point of " + what + " ran: all are out of memory, measure at least 2 smaller shapes");
    }
  }

  void link(std::size_t k) const {
    const std::string where = "links[" + std::to_string(k) + "] (" + std::string{to_string(p_.links[k].place)} + "): ";
    within(where + "bytes", p_.links[k].size.value(), 1, most_bytes);
    within(where + "ns", p_.links[k].time.value(), 1, longest_ns - 1);
  }

  [[noreturn]] void fail(const std::string& what) const { throw error{name_ + ": " + what}; }

 private:
  static constexpr std::int64_t longest_ns = 1'000'000'000'000;
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 50;
  static constexpr std::int64_t most_tokens = std::int64_t{1} << 31;

  [[noreturn]] void fail(std::size_t k, const std::string& what) const { fail(describe_point(p_, k) + ": " + what); }

  void within(const std::string& field, std::int64_t value, std::int64_t least, std::int64_t most) const {
    require_within(name_ + ": ", field, value, least, most);
  }
  void within(std::size_t k, const char* field, std::int64_t value, std::int64_t least) const {
    within(describe_point(p_, k) + ": " + field, value, least, most_tokens);
  }
  void not_above(std::size_t k, const char* part, std::int64_t value, const char* whole, std::int64_t limit) const {
    if (value > limit)
      fail(k, std::string{part} + " (" + std::to_string(value) + ") must not be above " + whole + " (" +
                  std::to_string(limit) + ')');
  }

  void padded(std::size_t k, const profile_point& point) const {
    within(k, "rows", point.padded.rows, 1);
    within(k, "input", point.padded.input, 1);
    within(k, "target", point.padded.target, point.kind == layer_kind::cross_decoder ? 1 : 0);
  }

  void varlen(std::size_t k, const profile_point& point) const {
    const varlen_shape& v = point.packed;
    within(k, "tokens", v.tokens, 1);
    within(k, "samples", v.samples, 1);
    within(k, "target_tokens", v.target_tokens, point.kind == layer_kind::cross_decoder ? 1 : 0);
    squares(k, "squares", v.squares, "tokens", v.tokens);
    squares(k, "target_squares", v.target_squares, "target_tokens", v.target_tokens);
    // The sum of products is at most the product of the sums, and its square at most that of the sums of squares.
    const wide_int pairs = v.cross_pairs;
    if (pairs < 0 || pairs > static_cast<wide_int>(v.tokens) * v.target_tokens ||
        pairs * pairs > static_cast<wide_int>(v.squares) * v.target_squares)
      fail(k, "cross_pairs cannot be the sum over samples of input times target of these tokens and squares");
  }

  /// All tokens in one sample make the largest sum; padding and a sliding window make it as small as can be.
  void squares(std::size_t k, const char* field, std::int64_t value, const char* of, std::int64_t sum) const {
    if (value < 0 || value > static_cast<wide_int>(sum) * sum)
      fail(k, std::string{field} + " (" + std::to_string(value) + ") cannot be a sum of squared lengths: for " + of +
                  ' ' + std::to_string(sum) + " it lies in 0.." + of + "^2");
  }

  /// Amount `a` of points that measure the same; where 0 says "not measured", those are left out.
  void repeats_of(std::span<const std::size_t> same, std::size_t a) const {
    const auto amount = [&](std::size_t k) { return amounts_of(p_.points[k])[a]; };
    std::size_t least = same[0];
    std::size_t most = same[0];
    for (const std::size_t k : same) {
      if (a >= profile_times_always_measured && amount(k) == 0) continue;
      if (amount(k) < amount(least) || (a >= profile_times_always_measured && amount(least) == 0)) least = k;
      if (amount(k) > amount(most)) most = k;
    }
    if (disagree(amount(least), amount(most)))
      fail(std::min(least, most), "it measures the same as points[" + std::to_string(std::max(least, most)) +
                                      "], but their " + profile_amount_names[a] +
                                      " disagree by more than 20 %: " + std::to_string(amount(std::min(least, most))) +
                                      " and " + std::to_string(amount(std::max(least, most))));
  }

  const profile& p_;
  const std::string& name_;
};

}  // namespace detail

/// Checks that a profile can be believed, for a fit or a table; `name` is what errors call it. O(n log n).
///
/// - Layer sizes are positive, or all four 0: unknown (tables without them). `tensor_parallel` lies in 1..`heads`.
/// - Rows, lengths and samples lie in 1..2^31 (`target` in 0..2^31, at least 1 for `cross_decoder`). `squares` lies in
///   0..`tokens`^2 (without a lower bound: see `varlen_shape`), `cross_pairs` can be a sum of products of such lengths.
/// - Forward and backward take more than 0 ns (an embedding may take 0) and less than 10^12. Bytes lie in 0..2^50.
/// - `weight` is a part of `backward`, `weight_stored` of `stored`, and `stored` of `forward_peak`. 0 in `weight` and
///   in any memory says "not measured"; so a `forward_peak` of 0 says nothing about `stored`.
/// - A point that ran out of memory has no times and no memory.
/// - Points of one kind, recomputation and shape agree within 20 % in each amount that was measured.
/// - Each (kind, recomputation) that has a point has two different shapes that ran. There is a point.
/// - Links have a positive size and time.
///
/// @throws error naming the field or the point by its number, kind, recomputation and shape, and the value.
template <class Lazy = void>
void require_sound(const profile& p, const std::string& name = "profile") {
  const detail::profile_check<Lazy> check{p, name};
  check.layer();
  if (p.points.empty()) check.fail("there are no points: nothing was measured");
  for (std::size_t k = 0; k < p.points.size(); ++k)
    check.point(k);
  check.repeats();
  check.enough();
  for (std::size_t k = 0; k < p.links.size(); ++k)
    check.link(k);
}

/// A sound profile with one point for each (kind, recomputation, shape), in the order of their first appearance: the
/// mean of each amount over the points that measured it, halves rounded up. Merging twice changes nothing. O(n log n),
/// never throws.
template <class Lazy = void>
[[nodiscard]] profile merged(const profile& p) {
  std::vector<std::pair<std::size_t, profile_point>> first;
  detail::for_each_same(p, [&](std::span<const std::size_t> same) {
    detail::profile_amounts mean{};
    for (std::size_t a = 0; a < mean.size(); ++a) {
      wide_int sum = 0;
      std::int64_t count = 0;
      for (const std::size_t k : same) {
        const std::int64_t amount = detail::amounts_of(p.points[k])[a];
        sum += amount;
        count += a < detail::profile_times_always_measured || amount != 0 ? 1 : 0;
      }
      if (count > 0) mean[a] = static_cast<std::int64_t>((2 * sum + count) / (2 * count));
    }
    profile_point point = p.points[same[0]];
    detail::set_amounts(point, mean);
    // Where only some points measured a part, its mean may rise above that of the whole.
    point.weight = std::min(point.weight, point.backward);
    point.weight_stored = std::min(point.weight_stored, point.stored);
    if (point.forward_peak > bytes{0}) point.forward_peak = std::max(point.forward_peak, point.stored);
    first.emplace_back(same[0], point);
  });
  std::sort(first.begin(), first.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  profile result = p;
  result.points.clear();
  for (const auto& [number, point] : first)
    result.points.push_back(point);
  return result;
}

}  // namespace dynapipe
