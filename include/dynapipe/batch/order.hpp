#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <dynapipe/batch/order_sorts.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/batch/tour.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>

namespace dynapipe {

/// The order in which samples are cut into micro-batches.
enum class sample_order : std::uint8_t {
  length,   ///< `order_by_length`: input, then target
  target,   ///< `order_by_target`: target, then input
  sum,      ///< `order_by_sum`
  snake,    ///< `order_by_snake`
  hilbert,  ///< `order_by_hilbert`
  tour      ///< `order_by_tour`
};

inline constexpr name_table<sample_order, 6> sample_order_names{{{sample_order::length, "length"},
                                                                 {sample_order::target, "target"},
                                                                 {sample_order::sum, "sum"},
                                                                 {sample_order::snake, "snake"},
                                                                 {sample_order::hilbert, "hilbert"},
                                                                 {sample_order::tour, "tour"}}};

[[nodiscard]] constexpr std::string_view to_string(sample_order value) { return name_in(sample_order_names, value); }

/// How samples with two lengths are ordered.
struct order_options {
  shape_options shapes{};
  std::size_t snake_strips = 0;  ///< 0: `snake_strips` of the number of samples
  tour_options tour{};
};

/// One order of the samples.
struct named_order {
  sample_order name = sample_order::length;
  std::vector<sample_id> ids;
};

/// The samples' ids in the order `name`. Every order holds each id once, keeps equal lengths by id, and depends on the
/// order of the input in nothing else. Complexity: see the order's function.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_samples(std::span<const sample_lengths> lengths, sample_order name,
                                                   const order_options& options = {}) {
  const std::size_t strips = options.snake_strips > 0 ? options.snake_strips : snake_strips(lengths.size());
  switch (name) {
    case sample_order::target: return order_by_target(lengths);
    case sample_order::sum: return order_by_sum(lengths);
    case sample_order::snake: return order_by_snake(lengths, options.shapes, strips);
    case sample_order::hilbert: return order_by_hilbert(lengths, options.shapes);
    case sample_order::tour: return order_by_tour(lengths, options.shapes, options.tour);
    case sample_order::length: break;
  }
  return order_by_length(lengths);
}

/// Orders worth cutting, in the order of `sample_order`, each but once: by length alone where samples have one length,
/// otherwise all. Where neighbours pad alike in both lengths is not where the pipeline is fastest for certain; so each
/// is cut, and the best cut taken (`best_order`).
template <class Lazy = void>
[[nodiscard]] std::vector<named_order> candidate_orders(std::span<const sample_lengths> lengths, bool two_lengths,
                                                        const order_options& options = {}) {
  std::vector<named_order> orders;
  for (const auto& [name, text] : sample_order_names) {
    if (!two_lengths && name != sample_order::length) break;
    named_order next{name, order_samples(lengths, name, options)};
    const bool known =
        std::any_of(orders.begin(), orders.end(), [&](const named_order& earlier) { return earlier.ids == next.ids; });
    if (!known) orders.push_back(std::move(next));
  }
  return orders;
}

/// The best of the candidate orders, and what it is worth.
struct chosen_order {
  named_order order;
  wide_int objective = 0;
};

/// The candidate order of least objective; of equal objectives the earlier in `sample_order`.
///
/// `evaluate(order)` gives the objective of the best cut of a `const named_order&`, any `std::optional` of an integer,
/// none where it is infeasible. Samples have two lengths where any has a target. None where no order is feasible. One
/// call of `evaluate` for each candidate order, and whatever it throws.
template <class Evaluate>
[[nodiscard]] std::optional<chosen_order> best_order(std::span<const sample_lengths> lengths, Evaluate&& evaluate,
                                                     const order_options& options = {}) {
  const bool two_lengths =
      std::any_of(lengths.begin(), lengths.end(), [](const sample_lengths& s) { return s.target > 0; });
  std::optional<chosen_order> best;
  for (named_order& order : candidate_orders(lengths, two_lengths, options)) {
    const auto objective = evaluate(std::as_const(order));
    if (!objective || (best && !(static_cast<wide_int>(*objective) < best->objective))) continue;
    best = chosen_order{std::move(order), static_cast<wide_int>(*objective)};
  }
  return best;
}

}  // namespace dynapipe
