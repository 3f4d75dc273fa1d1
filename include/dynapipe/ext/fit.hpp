#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Dense>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/cost/profile.hpp>
#include <dynapipe/cost/profile_sound.hpp>

/// Fitting cost curves to a profile. Needs Eigen.

namespace dynapipe {

/// Options of `fit`.
struct fit_options {
  /// Highest order of a length in the curves of times: 2, or 3. The third order is for attention that keeps its scores
  /// in memory, whose rate falls as they outgrow the caches; it is used only where the measured memory grows with the
  /// square of the length. Such curves cannot price varlen shapes.
  int degree = 3;
  /// Relative error from which on a point counts less (Huber's threshold).
  double outlier = 0.05;
  /// How much more a point of a memory peak weighs that the curve stays below: a peak too low runs out of memory.
  double peak_caution = 4;
};

namespace fit_detail {

/// The most terms of a curve.
inline constexpr int most_terms = 7;
using small_vector = Eigen::Matrix<double, Eigen::Dynamic, 1, 0, most_terms, 1>;
using small_matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, most_terms, most_terms>;

/// How the points of one curve are fitted.
struct loss {
  bool floored = true;      ///< times have a floor
  double outlier = 0.05;    ///< Huber's threshold, relative
  double caution = 1;       ///< a point that the curve stays below weighs this much more
  double tolerance = 1e-6;  ///< relative change of the line at which it is settled
};

/// Points of one curve: a column of counts over what was measured for each, what was measured, and the length by which
/// they are left out.
struct samples {
  Eigen::MatrixXd terms;
  Eigen::VectorXd measured;
  std::vector<std::int64_t> length;
};

/// max(floor, coefficients * terms).
struct line {
  double floor = 0;
  small_vector coefficients;
};

/// The x >= 0 that minimises x' G x - 2 h' x, for a positive semidefinite G with unit diagonal: the active-set method
/// of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23) on the normal equations.
inline small_vector non_negative_minimum(const small_matrix& gram, const small_vector& right) {
  const int n = static_cast<int>(right.size());
  small_vector x = small_vector::Zero(n);
  std::vector<int> free;
  const double least_gain = 1e-12 * right.cwiseAbs().maxCoeff();
  for (int step = 0; step < 10 * n; ++step) {
    const small_vector gain = right - gram * x;
    int best = -1;
    for (int i = 0; i < n; ++i)
      if (std::find(free.begin(), free.end(), i) == free.end() && gain[i] > least_gain &&
          (best < 0 || gain[i] > gain[best]))
        best = i;
    if (best < 0) break;
    free.push_back(best);
    while (!free.empty()) {
      const small_matrix inner = gram(free, free);
      const small_vector wanted = inner.ldlt().solve(small_vector{right(free)});
      double reach = 1;
      for (std::size_t k = 0; k < free.size(); ++k) {
        const double now = x[free[k]];
        const double then = wanted[static_cast<int>(k)];
        if (then <= 0) reach = std::min(reach, now / (now - then));
      }
      for (std::size_t k = 0; k < free.size(); ++k)
        x[free[k]] += reach * (wanted[static_cast<int>(k)] - x[free[k]]);
      if (reach >= 1) break;
      std::erase_if(free, [&](int i) {
        const bool stuck = x[i] <= 1e-15;
        if (stuck) x[i] = 0;
        return stuck;
      });
    }
  }
  return x;
}

inline double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The lower half of the normal equations' matrix, and their right side. The count of terms is known to the compiler,
/// so that sums stay in registers.
template <int Terms>
void normal_equations(const samples& points, const std::vector<int>& kept, const std::vector<double>& weight,
                      small_matrix& gram, small_vector& right) {
  if constexpr (Terms > 1)
    if (right.size() < Terms) return normal_equations<Terms - 1>(points, kept, weight, gram, right);
  double squares[Terms][Terms] = {};
  double sums[Terms] = {};
  for (std::size_t k = 0; k < kept.size(); ++k) {
    const double* column = points.terms.col(kept[k]).data();
    for (int a = 0; a < Terms; ++a) {
      const double weighted = weight[k] * column[a];
      sums[a] += weighted;
      for (int b = 0; b <= a; ++b)
        squares[a][b] += weighted * column[b];
    }
  }
  for (int a = 0; a < Terms; ++a) {
    right[a] = sums[a];
    for (int b = 0; b <= a; ++b)
      gram(a, b) = squares[a][b];
  }
}

/// Robust non-negative least squares of relative errors, over the points that are not of length `left_out`.
///
/// Alternates until nothing changes: points whose line lies above the floor determine the line, weighted by 1 /
/// measured and by the loss's weights of the last round; the floor is the median of the others. `start`, if there, is a
/// good guess.
inline line solve(const samples& points, const loss& how, std::int64_t left_out = -1, const line* start = nullptr) {
  const auto terms = static_cast<int>(points.terms.rows());
  std::vector<int> kept;
  for (std::size_t i = 0; i < points.length.size(); ++i)
    if (points.length[i] != left_out) kept.push_back(static_cast<int>(i));
  line result;
  if (start != nullptr) result = *start;
  if (start == nullptr && how.floored) result.floor = points.measured(kept).minCoeff();
  if (!how.floored) result.floor = 0;

  std::vector<double> weight(kept.size(), 1);
  std::vector<double> low;
  std::vector<double> value(kept.size());  // over what was measured
  // Weights of 0 are those of points on the floor.
  const auto reweigh = [&]() {
    low.clear();
    for (std::size_t k = 0; k < kept.size(); ++k) {
      const double* column = points.terms.col(kept[k]).data();
      value[k] = 0;
      for (int a = 0; a < terms; ++a)
        value[k] += column[a] * result.coefficients[a];
      if (value[k] * points.measured[kept[k]] < result.floor) low.push_back(points.measured[kept[k]]);
    }
    if (!low.empty()) result.floor = median(low);
    bool same = true;
    for (std::size_t k = 0; k < kept.size(); ++k) {
      const bool above = value[k] * points.measured[kept[k]] >= result.floor;
      const double off = value[k] - 1;
      const double size = std::abs(off);
      same = same && above == (weight[k] > 0);
      weight[k] = !above ? 0 : (size <= how.outlier ? 1 : how.outlier / size) * (off < 0 ? how.caution : 1);
    }
    return same;
  };
  if (start != nullptr) reweigh();

  for (int round = 0; round < 40; ++round) {
    small_matrix gram(terms, terms);
    small_vector right(terms);
    normal_equations<most_terms>(points, kept, weight, gram, right);
    gram.triangularView<Eigen::StrictlyUpper>() = gram.transpose();
    const small_vector norm = gram.diagonal().cwiseSqrt().cwiseMax(1e-150);
    const small_vector scale = norm.cwiseInverse();
    const small_matrix unit = scale.asDiagonal() * gram * scale.asDiagonal();
    const small_vector next = non_negative_minimum(unit, scale.cwiseProduct(right)).cwiseProduct(scale);
    const bool settled =
        result.coefficients.size() == next.size() &&
        ((result.coefficients - next).cwiseProduct(norm)).norm() <= how.tolerance * next.cwiseProduct(norm).norm();
    result.coefficients = next;
    const bool same = reweigh();
    // Without a point above the floor there is no line to see.
    if ((same && settled) || *std::max_element(weight.begin(), weight.end()) <= 0) break;
  }
  return result;
}

struct errors {
  double mean = -1;
  double p95 = -1;
};

inline errors summary_of(std::vector<double> off) {
  if (off.empty()) return {};
  double sum = 0;
  for (const double e : off)
    sum += e;
  const auto at = off.begin() + static_cast<std::ptrdiff_t>((off.size() * 95 + 99) / 100 - 1);
  std::nth_element(off.begin(), at, off.end());
  return {sum / static_cast<double>(off.size()), *at};
}

inline double error_at(const samples& points, const line& fitted, int i) {
  return std::abs(std::max(fitted.floor / points.measured[i], points.terms.col(i).dot(fitted.coefficients)) - 1);
}

inline errors errors_of(const samples& points, const line& fitted) {
  std::vector<double> off;
  for (int i = 0; i < static_cast<int>(points.measured.size()); ++i)
    off.push_back(error_at(points, fitted, i));
  return summary_of(std::move(off));
}

/// Errors on each length by a fit without it.
inline errors leave_lengths_out(const samples& points, const loss& how, const line& whole) {
  std::vector<std::int64_t> lengths = points.length;
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (lengths.size() < 2) return {};
  loss rough = how;
  rough.tolerance = 1e-3;
  std::vector<double> off;
  for (const std::int64_t length : lengths) {
    const line without = solve(points, rough, length, &whole);
    for (std::size_t i = 0; i < points.length.size(); ++i)
      if (points.length[i] == length) off.push_back(error_at(points, without, static_cast<int>(i)));
  }
  return summary_of(std::move(off));
}

/// The counts that a curve of this kind has terms for.
inline std::vector<std::int64_t cost_curve::*> basis_of(layer_kind kind, int degree) {
  if (kind == layer_kind::embedding || kind == layer_kind::head) return {&cost_curve::constant, &cost_curve::queries};
  const bool crosses = kind == layer_kind::cross_decoder;
  std::vector<std::int64_t cost_curve::*> terms{&cost_curve::constant, &cost_curve::queries, &cost_curve::self_pairs};
  if (crosses) terms.insert(terms.end(), {&cost_curve::keys, &cost_curve::cross_pairs});
  if (degree >= 3) terms.push_back(&cost_curve::self_cubes);
  if (degree >= 3 && crosses) terms.push_back(&cost_curve::cross_cubes);
  return terms;
}

inline double count_of(std::int64_t cost_curve::* term, const detail::curve_counts& counts) {
  const auto all_rows = [&](std::int64_t of_one) {
    return static_cast<double>(counts.rows) * static_cast<double>(of_one);
  };
  if (term == &cost_curve::queries) return all_rows(counts.one.queries);
  if (term == &cost_curve::keys) return all_rows(counts.one.keys);
  if (term == &cost_curve::self_pairs) return all_rows(counts.one.self_pairs);
  if (term == &cost_curve::cross_pairs) return all_rows(counts.one.cross_pairs);
  if (term == &cost_curve::self_cubes) return all_rows(counts.self_cubes);
  if (term == &cost_curve::cross_cubes) return all_rows(counts.cross_cubes);
  return 1;
}

inline detail::curve_counts counts_at(const profile_point& point) {
  return point.varlen ? detail::curve_counts_of(point.kind, point.packed)
                      : detail::curve_counts_of(point.kind, point.padded);
}

inline seen_range range_at(const profile_point& point) {
  return point.varlen ? fitted_cost::range_of(point.kind, point.packed)
                      : fitted_cost::range_of(point.kind, point.padded);
}

/// Points by length: rounded to a power of two for varlen ones, whose mean lengths are all different.
inline std::int64_t length_group(const profile_point& point) {
  const seen_range at = range_at(point);
  const std::int64_t length = std::max(at.query_length[0], at.key_length[0]);
  if (!point.varlen) return length;
  return std::int64_t{1} << std::llround(std::log2(static_cast<double>(length)));
}

inline std::int64_t fixed_point(double coefficient, const std::string& what) {
  const double scaled = coefficient * static_cast<double>(std::int64_t{1} << curve_shift);
  if (!(scaled < 0x1p61)) throw error{what + ": a coefficient of " + std::to_string(coefficient) + " is too large"};
  return std::llround(scaled);
}

inline cost_curve curve_of(const line& fitted, const std::vector<std::int64_t cost_curve::*>& terms,
                           const std::string& what) {
  cost_curve curve{.floor = std::llround(fitted.floor)};
  for (std::size_t k = 0; k < terms.size(); ++k) {
    const auto term = terms[k];
    const double c = fitted.coefficients[static_cast<int>(k)];
    curve.*term = term == &cost_curve::constant ? std::llround(c) : fixed_point(c, what);
  }
  return curve;
}

/// The curve of one amount over points that measured it.
inline fitted_curve fit_amount(std::span<const profile_point* const> points, cost_amount amount, int degree,
                               const fit_options& options) {
  const auto of = [&](const profile_point& p) { return detail::amounts_of(p)[static_cast<std::size_t>(amount)]; };
  std::vector<const profile_point*> measured;
  for (const profile_point* point : points)
    if (of(*point) > 0) measured.push_back(point);
  if (measured.size() < 2) return {};
  const auto terms = basis_of(measured[0]->kind, degree);
  const auto count = static_cast<Eigen::Index>(measured.size());
  samples all{Eigen::MatrixXd(static_cast<Eigen::Index>(terms.size()), count), Eigen::VectorXd(count), {}};
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const detail::curve_counts counts = counts_at(*measured[i]);
    const auto at = static_cast<Eigen::Index>(i);
    all.measured[at] = static_cast<double>(of(*measured[i]));
    for (std::size_t k = 0; k < terms.size(); ++k)
      all.terms(static_cast<Eigen::Index>(k), at) = count_of(terms[k], counts) / all.measured[at];
    all.length.push_back(length_group(*measured[i]));
  }
  const bool peak = amount == cost_amount::forward_peak || amount == cost_amount::backward_peak;
  const loss how{
      .floored = amount <= cost_amount::weight, .outlier = options.outlier, .caution = peak ? options.peak_caution : 1};
  const line best = solve(all, how);
  const errors in = errors_of(all, best);
  const errors out = leave_lengths_out(all, how, best);
  const std::string what = std::string{to_string(amount)} + " of " + std::string{to_string(measured[0]->kind)};
  return {true, curve_of(best, terms, what), {count, in.mean, in.p95, out.mean, out.p95}};
}

/// Whether a twentieth of some measured memory, at the longest length, grows with the square of the length.
inline bool keeps_scores(const fitted_layer& layer) {
  const auto length = static_cast<double>(std::max(layer.seen.query_length[1], layer.seen.key_length[1]));
  return std::any_of(layer.amounts.begin(), layer.amounts.end(), [&](const fitted_curve& fitted) {
    const auto squares = static_cast<double>(fitted.curve.self_pairs) + static_cast<double>(fitted.curve.cross_pairs);
    return fitted.known && 19 * squares * length > static_cast<double>(fitted.curve.queries);
  });
}

/// All curves of one kind and recomputation: memory first, since it tells what the times may look like.
inline fitted_layer fit_layer(std::span<const profile_point* const> points, const seen_range& seen,
                              const fit_options& options) {
  fitted_layer layer{.seen = seen, .amounts = {}};
  const auto fit_one = [&](cost_amount amount, int degree) {
    layer.amounts[static_cast<std::size_t>(amount)] = fit_amount(points, amount, degree, options);
  };
  for (const auto& [amount, name] : cost_amount_names)
    if (amount > cost_amount::weight) fit_one(amount, 2);
  const bool varlen = std::any_of(points.begin(), points.end(), [](const profile_point* p) { return p->varlen; });
  const int degree = options.degree >= 3 && !varlen && keeps_scores(layer) ? 3 : 2;
  for (const cost_amount time : {cost_amount::forward, cost_amount::backward, cost_amount::weight})
    fit_one(time, degree);
  return layer;
}

inline seen_range range_over(std::span<const profile_point* const> points) {
  seen_range all = range_at(*points[0]);
  const auto widen = [](std::array<std::int64_t, 2>& range, const std::array<std::int64_t, 2>& by) {
    range = {std::min(range[0], by[0]), std::max(range[1], by[1])};
  };
  for (const profile_point* point : points) {
    const seen_range one = range_at(*point);
    widen(all.tokens, one.tokens);
    widen(all.query_length, one.query_length);
    widen(all.key_length, one.key_length);
  }
  return all;
}

inline fitted_link fit_link(const std::vector<profile_link>& links, link_place place, double outlier) {
  std::vector<const profile_link*> here;
  for (const profile_link& link : links)
    if (link.place == place) here.push_back(&link);
  if (here.size() < 2) return {};
  const auto count = static_cast<Eigen::Index>(here.size());
  samples points{Eigen::MatrixXd::Ones(2, count), Eigen::VectorXd(count), std::vector<std::int64_t>(here.size(), 0)};
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto at = static_cast<Eigen::Index>(i);
    points.measured[at] = static_cast<double>(here[i]->time.value());
    points.terms(1, at) = static_cast<double>(here[i]->size.value());
    points.terms.col(at) /= points.measured[at];
  }
  const line fitted = solve(points, {.floored = false, .outlier = outlier});
  constexpr double fastest = 1e9;
  const double slope = fitted.coefficients[1];
  return {count, nanoseconds{std::llround(fitted.coefficients[0])}, slope > 8 / fastest ? 8 / slope : fastest,
          errors_of(points, fitted).mean};
}

}  // namespace fit_detail

/// Fits curves to a profile: for every kind, recomputation and amount max(floor, a + b tokens + c sum of squares, with
/// cross terms for cross-attention and terms of third order where they earn their place).
///
/// Problem: minimise the sum of Huber(relative error) over coefficients >= 0 and the floor of times; memory has no
/// floor. Method: iteratively reweighted non-negative least squares (Lawson and Hanson) on relative errors, in turn
/// with which points the floor explains. Links, latency + bytes / bandwidth, are fitted in the same way.
///
/// Guarantee: coefficients are at least 0, so curves rise with rows and lengths; errors are reported in sample and for
/// lengths left out. Coefficients come from floating point: save the result and share it instead of fitting on every
/// rank. Points that ran out of memory are passed over; amounts of 0 are "not measured", and one measured by a single
/// point stays unknown. Repeated points count as one. O(points x lengths).
///
/// @throws error where the profile is not sound (`require_sound`).
[[nodiscard]] inline fitted_costs fit(const profile& measured, const fit_options& options = {}) {
  require_sound(measured);
  const profile once = merged(measured);
  fitted_costs result{.device = once.device,
                      .type = once.type,
                      .tensor_parallel = once.tensor_parallel,
                      .parameters = once.parameters,
                      .layers = {},
                      .links = {}};
  for (const auto& [kind, kind_name] : layer_kind_names)
    for (const auto& [recompute, recompute_name] : recompute_names) {
      std::vector<const profile_point*> points;
      for (const profile_point& point : once.points)
        if (point.kind == kind && point.recompute == recompute && !point.out_of_memory) points.push_back(&point);
      if (points.empty()) continue;
      result.of(kind, recompute) = fit_detail::fit_layer(points, fit_detail::range_over(points), options);
    }
  for (const auto& [place, place_name] : link_place_names)
    result.links[static_cast<std::size_t>(place)] = fit_detail::fit_link(once.links, place, options.outlier);
  return result;
}

}  // namespace dynapipe
