#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/profile.hpp>

namespace dynapipe {

/// max(floor, constant + queries * q + keys * k + self_pairs * s + cross_pairs * x + self_cubes * s l + cross_cubes *
/// x (l + m)) of the `token_counts` q, k, s, x of a shape with query length l and key length m. `floor` and `constant`
/// are nanoseconds or bytes, the others 2^-32 of them; all are at least 0.
///
/// The terms of third order are for kernels whose rate falls with length (attention that is not fused); they exist for
/// padded rows only.
struct cost_curve {
  std::int64_t floor = 0;
  std::int64_t constant = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t self_pairs = 0;
  std::int64_t cross_pairs = 0;
  std::int64_t self_cubes = 0;
  std::int64_t cross_cubes = 0;

  [[nodiscard]] constexpr bool cubic() const { return self_cubes > 0 || cross_cubes > 0; }
  friend constexpr bool operator==(const cost_curve&, const cost_curve&) = default;
};

/// Binary digits after the point of a curve's coefficients.
inline constexpr int curve_shift = 32;

/// How far a curve is from its points, relative: mean and 95th percentile of |curve / measured - 1|. `out` is over
/// points of lengths that the curve was fitted without, each length left out in turn; -1 where there is one length
/// only.
struct fit_error {
  std::int64_t points = 0;
  double mean = 0;
  double p95 = 0;
  double out_mean = -1;
  double out_p95 = -1;

  friend bool operator==(const fit_error&, const fit_error&) = default;
};

/// A curve with its error; `known` is false where nothing was measured.
struct fitted_curve {
  bool known = false;
  cost_curve curve;
  fit_error error;

  friend bool operator==(const fitted_curve&, const fitted_curve&) = default;
};

/// Where the points of one kind and recomputation lie: least and greatest query tokens of a micro-batch, length of a
/// query row and of a key row (for varlen points their mean lengths). All 0: there is none.
struct seen_range {
  std::array<std::int64_t, 2> tokens{};
  std::array<std::int64_t, 2> query_length{};
  std::array<std::int64_t, 2> key_length{};

  friend constexpr bool operator==(const seen_range&, const seen_range&) = default;
};

/// The curves of one kind and recomputation.
struct fitted_layer {
  seen_range seen;
  std::array<fitted_curve, cost_amount_names.size()> amounts;

  [[nodiscard]] const fitted_curve& of(cost_amount amount) const { return amounts[static_cast<std::size_t>(amount)]; }
  friend bool operator==(const fitted_layer&, const fitted_layer&) = default;
};

/// A fitted link: latency + bytes / bandwidth; `gbps` in gigabit per second, 0 where none was measured.
struct fitted_link {
  std::int64_t points = 0;
  nanoseconds latency{0};
  double gbps = 0;
  double mean_error = 0;

  friend bool operator==(const fitted_link&, const fitted_link&) = default;
};

/// What a fit makes of a profile: values, to be saved and evaluated. Made by `fit` in `ext/fit.hpp`.
struct fitted_costs {
  std::string device;
  dtype type = dtype::bf16;
  std::int64_t tensor_parallel = 1;
  std::array<bytes, layer_kind_names.size()> parameters{};  ///< bytes of one layer's weights on one rank
  std::array<std::array<fitted_layer, recompute_names.size()>, layer_kind_names.size()> layers{};
  std::array<fitted_link, link_place_names.size()> links{};

  [[nodiscard]] const fitted_layer& of(layer_kind kind, recompute_mode recompute) const {
    return layers[static_cast<std::size_t>(kind)][static_cast<std::size_t>(recompute)];
  }
  [[nodiscard]] fitted_layer& of(layer_kind kind, recompute_mode recompute) {
    return layers[static_cast<std::size_t>(kind)][static_cast<std::size_t>(recompute)];
  }
  friend bool operator==(const fitted_costs&, const fitted_costs&) = default;
};

/// The cluster with the links that were measured in place of its own.
[[nodiscard]] inline cluster_spec with_links(cluster_spec cluster, const fitted_costs& costs) {
  const auto replace = [](link_spec& link, const fitted_link& measured) {
    if (measured.points == 0) return;
    link.latency = measured.latency;
    link.gbps = measured.gbps;
  };
  replace(cluster.intra_node, costs.links[static_cast<std::size_t>(link_place::intra_node)]);
  replace(cluster.inter_node, costs.links[static_cast<std::size_t>(link_place::inter_node)]);
  return cluster;
}

namespace detail {

/// Counts of one of `rows` rows that are alike, with those of third order; held at the largest int64.
struct curve_counts {
  token_counts one;
  std::int64_t self_cubes = 0;
  std::int64_t cross_cubes = 0;
  std::int64_t rows = 1;
};

[[nodiscard]] constexpr curve_counts curve_counts_of(layer_kind kind, const shape& s) {
  const auto [one, rows] = row_counts_of(kind, s);
  curve_counts c{.one = one, .rows = rows};
  const std::int64_t length = kind == layer_kind::cross_decoder ? s.target : s.input;
  c.self_cubes = saturating_mul(one.self_pairs, length);
  c.cross_cubes = one.cross_pairs == 0 ? 0 : saturating_mul(one.cross_pairs, saturating_add(s.input, s.target));
  return c;
}

[[nodiscard]] constexpr curve_counts curve_counts_of(layer_kind kind, const varlen_shape& s) {
  return {.one = counts_of(kind, s)};
}

/// What one row adds to the curve's constant, rounded up and held at the largest int64. Exact in integers.
[[nodiscard]] inline std::int64_t row_at(const cost_curve& curve, const curve_counts& c) {
  constexpr wide_int rounding = (wide_int{1} << curve_shift) - 1;
  const token_counts& n = c.one;
  const std::int64_t coefficients =
      curve.queries | curve.keys | curve.self_pairs | curve.cross_pairs | curve.self_cubes | curve.cross_cubes;
  const std::int64_t counts = n.queries | n.keys | n.self_pairs | n.cross_pairs | c.self_cubes | c.cross_cubes;
  const auto product = [](std::int64_t a, std::int64_t b) { return static_cast<wide_int>(a) * b; };
  // Six products below 2^122 cannot overflow.
  if (((coefficients | counts) >> 61) == 0) [[likely]]
    return saturate((rounding + product(curve.queries, n.queries) + product(curve.keys, n.keys) +
                     product(curve.self_pairs, n.self_pairs) + product(curve.cross_pairs, n.cross_pairs) +
                     product(curve.self_cubes, c.self_cubes) + product(curve.cross_cubes, c.cross_cubes)) >>
                    curve_shift);
  wide_int sum = rounding;
  const auto add = [&](std::int64_t coefficient, std::int64_t count) {
    // A count at the largest int64 stands for any above it.
    return coefficient == 0 || (count < int64_limit && !__builtin_add_overflow(sum, product(coefficient, count), &sum));
  };
  if (!add(curve.queries, n.queries) || !add(curve.keys, n.keys) || !add(curve.self_pairs, n.self_pairs) ||
      !add(curve.cross_pairs, n.cross_pairs) || !add(curve.self_cubes, c.self_cubes) ||
      !add(curve.cross_cubes, c.cross_cubes))
    return int64_limit;
  return saturate(sum >> curve_shift);
}

/// The curve's value, held at the largest int64: exactly convex in rows.
[[nodiscard]] inline std::int64_t value_at(const cost_curve& curve, const curve_counts& c) {
  return std::max(curve.floor, saturating_add(curve.constant, saturating_mul(c.rows, row_at(curve, c))));
}

/// What `whole` has that `part` has not, so that it rises too and the two sum to `whole` at least.
[[nodiscard]] constexpr cost_curve remainder(const cost_curve& whole, const cost_curve& part) {
  const auto left = [&](std::int64_t cost_curve::* term) {
    return std::max<std::int64_t>(0, whole.*term - part.*term);
  };
  return {left(&cost_curve::floor),      left(&cost_curve::constant),   left(&cost_curve::queries),
          left(&cost_curve::keys),       left(&cost_curve::self_pairs), left(&cost_curve::cross_pairs),
          left(&cost_curve::self_cubes), left(&cost_curve::cross_cubes)};
}

/// The half of a cost that was not measured apart; of the largest value, which says no, all.
[[nodiscard]] constexpr std::int64_t half_of(std::int64_t whole) { return whole == int64_limit ? whole : whole / 2; }

}  // namespace detail

/// Options of `fitted_cost` and `table_cost`.
struct fitted_options {
  /// Answers what was not measured: memory of kinds without any, states of kinds without parameters. A roofline of the
  /// model that is planned.
  std::optional<analytic_cost> rest{};
};

/// A `cost_model` of fitted curves, for padded and for varlen shapes, that knows where it has been.
///
/// - A kind and recomputation without times is refused, but for the embedding, whose times then count 0.
/// - Memory that was not measured is that of `rest`; without it, the shape is refused.
/// - A split backward is known where `weight` was measured: the input half is what the backward's curve has more, term
///   by term. Otherwise each is half of the backward.
/// - Shapes are never refused for being outside of what was measured: `extrapolates` tells (more tokens or longer
///   rows than any point; smaller ones are charged at the floor).
/// - Curves with terms of third order cannot price varlen shapes: refused.
///
/// Integers throughout: equal on every machine and under any compiler flag. O(1) for each call, never throws.
class fitted_cost {
 public:
  explicit fitted_cost(fitted_costs costs, fitted_options options = {})
      : costs_{std::move(costs)}, rest_{std::move(options.rest)}, source_{"fit of " + costs_.device} {}

  [[nodiscard]] const fitted_costs& costs() const { return costs_; }
  [[nodiscard]] const std::optional<analytic_cost>& rest() const { return rest_; }
  /// What plans name as the source of their costs.
  [[nodiscard]] const std::string& source() const { return source_; }
  /// Of one length, every curve is the larger of its floor and a line in rows.
  [[nodiscard]] static constexpr bool convex_rows() { return true; }

  template <micro_batch_shape Shape>
  [[nodiscard]] nanoseconds forward(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return nanoseconds{value(cost_amount::forward, kind, s, recompute)};
  }
  template <micro_batch_shape Shape>
  [[nodiscard]] nanoseconds backward(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return nanoseconds{value(cost_amount::backward, kind, s, recompute)};
  }
  template <micro_batch_shape Shape>
  [[nodiscard]] nanoseconds backward_weight(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    const std::int64_t whole = value(cost_amount::backward, kind, s, recompute);
    if (!costs_.of(kind, recompute).of(cost_amount::weight).known) return nanoseconds{detail::half_of(whole)};
    return nanoseconds{std::min(whole, value(cost_amount::weight, kind, s, recompute))};
  }
  template <micro_batch_shape Shape>
  [[nodiscard]] nanoseconds backward_input(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    const std::int64_t whole = value(cost_amount::backward, kind, s, recompute);
    const fitted_layer& layer = costs_.of(kind, recompute);
    if (whole == int64_limit) return nanoseconds{whole};
    if (!layer.of(cost_amount::weight).known) return nanoseconds{whole - whole / 2};
    const cost_curve input =
        detail::remainder(layer.of(cost_amount::backward).curve, layer.of(cost_amount::weight).curve);
    return nanoseconds{detail::value_at(input, detail::curve_counts_of(kind, s))};
  }
  template <micro_batch_shape Shape>
  [[nodiscard]] bytes stored(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return bytes{value(cost_amount::stored, kind, s, recompute)};
  }
  template <micro_batch_shape Shape>
  [[nodiscard]] bytes weight_stored(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    const std::int64_t all = value(cost_amount::stored, kind, s, recompute);
    if (!costs_.of(kind, recompute).of(cost_amount::weight_stored).known) return bytes{detail::half_of(all)};
    return bytes{std::min(all, value(cost_amount::weight_stored, kind, s, recompute))};
  }
  template <micro_batch_shape Shape>
  [[nodiscard]] bytes forward_peak(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return bytes{
        std::max(value(cost_amount::forward_peak, kind, s, recompute), value(cost_amount::stored, kind, s, recompute))};
  }
  template <micro_batch_shape Shape>
  [[nodiscard]] bytes backward_peak(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return bytes{value(cost_amount::backward_peak, kind, s, recompute)};
  }

  /// Weights, gradients and optimizer states: those of `rest`, or of the measured parameters with Adam. A head without
  /// parameters of its own uses the embedding's.
  [[nodiscard]] bytes state(layer_kind kind) const {
    if (rest_) return rest_->state(kind);
    const auto of = [&](layer_kind k) { return costs_.parameters[static_cast<std::size_t>(k)].value(); };
    const std::int64_t weights = kind == layer_kind::head && of(kind) == 0 ? of(layer_kind::embedding) : of(kind);
    return bytes{saturating_mul(ceil_div(weights, size_of(costs_.type)), state_bytes_per_parameter(costs_.type))};
  }

  /// Whether the shape has more tokens, or longer rows, than any point of its kind.
  template <micro_batch_shape Shape>
  [[nodiscard]] bool extrapolates(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    const fitted_layer& layer = costs_.of(kind, recompute);
    if (!layer.of(cost_amount::forward).known) return false;
    const seen_range now = range_of(kind, s);
    return now.tokens[1] > layer.seen.tokens[1] || now.query_length[1] > layer.seen.query_length[1] ||
           now.key_length[1] > layer.seen.key_length[1];
  }

  /// Why a shape is refused, if it is.
  template <micro_batch_shape Shape>
  [[nodiscard]] std::string refusal(layer_kind kind, const Shape&, recompute_mode recompute) const {
    const fitted_layer& layer = costs_.of(kind, recompute);
    const std::string who = std::string{to_string(kind)} + " with recompute " + std::string{to_string(recompute)};
    for (const auto& [amount, name] : cost_amount_names) {
      if (amount == cost_amount::weight || amount == cost_amount::weight_stored) continue;
      const fitted_curve& fitted = layer.of(amount);
      if (fitted.known && fitted.curve.cubic() && std::same_as<Shape, varlen_shape>)
        return std::string{name} + " of " + who +
               " was fitted with a term of third order, which sums of squares cannot price: fit varlen points, or with "
               "degree 2";
      if (!fitted.known && is_time(amount) && kind != layer_kind::embedding)
        return "the measured costs of " + costs_.device + " have no " + who +
               ": measure it, or use another --recompute";
      if (!fitted.known && !is_time(amount) && !rest_)
        return "the measured costs of " + costs_.device + " have no " + std::string{name} + " of " + who;
    }
    return {};
  }

  /// One amount; the largest int64 where the shape is refused. What `rest` answers is included.
  template <micro_batch_shape Shape>
  [[nodiscard]] std::int64_t value(cost_amount amount, layer_kind kind, const Shape& s,
                                   recompute_mode recompute) const {
    const fitted_curve& fitted = costs_.of(kind, recompute).of(amount);
    if (fitted.known) {
      if constexpr (std::same_as<Shape, varlen_shape>)
        if (fitted.curve.cubic()) return int64_limit;
      return detail::value_at(fitted.curve, detail::curve_counts_of(kind, s));
    }
    if (is_time(amount)) return kind == layer_kind::embedding ? 0 : int64_limit;
    if (!rest_) return int64_limit;
    switch (amount) {
      case cost_amount::stored: return rest_->stored(kind, s, recompute).value();
      case cost_amount::weight_stored: return rest_->weight_stored(kind, s, recompute).value();
      case cost_amount::forward_peak: return rest_->forward_peak(kind, s, recompute).value();
      default: return rest_->backward_peak(kind, s, recompute).value();
    }
  }

  /// Where a shape lies, as one point's range.
  [[nodiscard]] static seen_range range_of(layer_kind kind, const shape& s) {
    const bool crosses = kind == layer_kind::cross_decoder;
    const std::int64_t query = crosses || (kind == layer_kind::head && s.target > 0) ? s.target : s.input;
    const std::int64_t all = saturating_mul(s.rows, query);
    const std::int64_t key = crosses ? s.input : 0;
    return {{all, all}, {query, query}, {key, key}};
  }
  [[nodiscard]] static seen_range range_of(layer_kind kind, const varlen_shape& s) {
    const bool crosses = kind == layer_kind::cross_decoder;
    const std::int64_t all = crosses || (kind == layer_kind::head && s.target_tokens > 0) ? s.target_tokens : s.tokens;
    const std::int64_t samples = std::max<std::int64_t>(1, s.samples);
    const std::int64_t query = ceil_div(all, samples);
    const std::int64_t key = crosses ? ceil_div(s.tokens, samples) : 0;
    return {{all, all}, {query, query}, {key, key}};
  }

 private:
  [[nodiscard]] static constexpr bool is_time(cost_amount amount) { return amount <= cost_amount::weight; }

  fitted_costs costs_;
  std::optional<analytic_cost> rest_;
  std::string source_;
};

static_assert(split_cost_model<fitted_cost> && split_cost_model<fitted_cost, varlen_shape>);

}  // namespace dynapipe
