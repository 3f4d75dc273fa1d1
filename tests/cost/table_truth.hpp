#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include <dynapipe/cost/table.hpp>

/// Layers whose true costs are known, for tests of tables.

namespace table_truth {

using namespace dynapipe;

inline constexpr auto none = recompute_mode::none;

/// What a layer truly takes, and how the points of a profile differ from it.
using truth = std::function<double(cost_amount, const shape&)>;

inline std::int64_t fixed(double c) {
  return static_cast<std::int64_t>(c * static_cast<double>(std::int64_t{1} << 32));
}

/// Curves of a decoder or of one that attends to an encoder; queries, squares and the rest grow from amount to amount.
inline cost_curve curve_of(cost_amount amount) {
  switch (amount) {
    case cost_amount::forward:
      return {.floor = 90'000,
              .constant = 50'000,
              .queries = fixed(120),
              .keys = fixed(60),
              .self_pairs = fixed(0.0156),
              .cross_pairs = fixed(0.0311)};
    case cost_amount::backward:
      return {.floor = 150'000,
              .constant = 80'000,
              .queries = fixed(260),
              .keys = fixed(110),
              .self_pairs = fixed(0.04),
              .cross_pairs = fixed(0.07)};
    case cost_amount::weight: return {.floor = 40'000, .constant = 30'000, .queries = fixed(90), .keys = fixed(40)};
    case cost_amount::stored: return {.queries = fixed(139'264), .keys = fixed(32'768)};
    case cost_amount::weight_stored: return {.queries = fixed(81'920), .keys = fixed(16'384)};
    case cost_amount::forward_peak: return {.queries = fixed(180'000), .keys = fixed(50'000)};
    case cost_amount::backward_peak: return {.queries = fixed(220'000), .keys = fixed(60'000), .self_pairs = fixed(2)};
  }
  return {};
}

/// The curve in floating point, each row rounded up.
inline double smooth(layer_kind kind, cost_amount amount, const shape& s) {
  const cost_curve c = curve_of(amount);
  const auto at = [](std::int64_t coefficient) { return static_cast<double>(coefficient) / 0x1p32; };
  const bool crosses = kind == layer_kind::cross_decoder;
  const auto rows = static_cast<double>(s.rows);
  const auto query = static_cast<double>(crosses || (kind == layer_kind::head && s.target > 0) ? s.target : s.input);
  const double key = crosses ? static_cast<double>(s.input) : 0;
  return std::max(static_cast<double>(c.floor),
                  static_cast<double>(c.constant) +
                      rows * std::ceil(at(c.queries) * query + at(c.keys) * key + at(c.self_pairs) * query * query +
                                       at(c.cross_pairs) * query * key));
}

/// Up to 10 % off the curves, slowly.
inline double wobbly(layer_kind kind, cost_amount amount, const shape& s) {
  const double phase = 0.7 * std::log2(static_cast<double>(s.rows)) + 0.9 * std::log2(static_cast<double>(s.input)) +
                       0.5 * std::log2(static_cast<double>(s.target + 1));
  return smooth(kind, amount, s) * (1 + 0.1 * std::sin(phase));
}

inline fitted_cost fit_of(layer_kind kind, bool split = true) {
  fitted_costs costs{.device = "gpu"};
  for (const auto& [amount, name] : cost_amount_names)
    if (split || (amount != cost_amount::weight && amount != cost_amount::weight_stored))
      costs.of(kind, none).amounts[static_cast<std::size_t>(amount)] = {true, curve_of(amount), {}};
  return fitted_cost{costs};
}

inline profile_point point_of(layer_kind kind, const shape& s, const truth& taken) {
  profile_point point{.kind = kind, .padded = s};
  detail::profile_amounts amounts{};
  for (const auto& [amount, name] : cost_amount_names)
    amounts[static_cast<std::size_t>(amount)] = std::llround(taken(amount, s));
  detail::set_amounts(point, amounts);
  return point;
}

inline profile profile_of(layer_kind kind, const std::vector<shape>& shapes, const truth& taken) {
  profile p{.device = "gpu"};
  for (const shape& s : shapes)
    p.points.push_back(point_of(kind, s, taken));
  return p;
}

/// Rows x lengths with at most `most` tokens.
inline std::vector<shape> grid(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& lengths,
                               std::int64_t most) {
  std::vector<shape> shapes;
  for (const std::int64_t r : rows)
    for (const std::int64_t length : lengths)
      if (r * length <= most) shapes.push_back({r, length, 0});
  return shapes;
}

inline const std::vector<std::int64_t> powers_of_rows{1, 2, 4, 8, 16, 32};
inline const std::vector<std::int64_t> powers_of_lengths{64, 128, 256, 512, 1'024, 2'048, 4'096};

inline truth wobble_of(layer_kind kind) {
  return [kind](cost_amount amount, const shape& s) { return wobbly(kind, amount, s); };
}
inline truth smooth_of(layer_kind kind) {
  return [kind](cost_amount amount, const shape& s) { return smooth(kind, amount, s); };
}

/// Factors drawn for each amount and point, the same each time it is asked.
inline truth noisy_of(layer_kind kind, std::uint64_t seed, double by) {
  return [=](cost_amount amount, const shape& s) {
    std::mt19937_64 random{seed ^ (static_cast<std::uint64_t>(s.rows) << 40) ^
                           (static_cast<std::uint64_t>(s.input) << 20) ^ static_cast<std::uint64_t>(s.target)};
    std::uniform_real_distribution<double> factor{1 - by, 1 + by};
    std::array<double, 7> factors{};
    for (double& f : factors)
      f = factor(random);
    // Parts stay parts of their wholes.
    const auto value = [&](cost_amount a) { return smooth(kind, a, s) * factors[static_cast<std::size_t>(a)]; };
    if (amount == cost_amount::weight) return std::min(value(amount), value(cost_amount::backward));
    if (amount == cost_amount::weight_stored) return std::min(value(amount), value(cost_amount::stored));
    if (amount == cost_amount::forward_peak) return std::max(value(amount), value(cost_amount::stored));
    return value(amount);
  };
}

inline std::array<std::int64_t, 8> every_cost(const table_cost& cost, layer_kind kind, const shape& s) {
  return {cost.forward(kind, s, none).value(),        cost.backward(kind, s, none).value(),
          cost.backward_input(kind, s, none).value(), cost.backward_weight(kind, s, none).value(),
          cost.stored(kind, s, none).value(),         cost.weight_stored(kind, s, none).value(),
          cost.forward_peak(kind, s, none).value(),   cost.backward_peak(kind, s, none).value()};
}

inline bool all_refused(const table_cost& cost, layer_kind kind, const shape& s) {
  const auto costs = every_cost(cost, kind, s);
  return std::all_of(costs.begin(), costs.end(), [](std::int64_t c) { return c == int64_limit; });
}

inline double relative(std::int64_t got, double expected) { return std::abs(static_cast<double>(got) / expected - 1); }

}  // namespace table_truth
