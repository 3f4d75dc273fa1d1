#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/batch/order_sorts.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/batch/tour_search.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>

namespace dynapipe {

/// How long a tour is searched.
struct tour_options {
  std::int64_t moves_per_point = 4;   ///< so many changes of the path at most for each distinct point
  std::int64_t most_moves = 1 << 17;  ///< and so many in all; 0 leaves the start as it is
  std::size_t neighbours = 8;         ///< of each point that a change may join it to
  std::uint64_t seed = 1;             ///< of the places where the path is shaken
};

/// How far an order travels: the sum over neighbours in it of |difference of padded inputs| + |difference of padded
/// targets|, in tokens. DynaPipe's measure of an order, on padded lengths. O(n), never throws.
template <class Lazy = void>
[[nodiscard]] std::int64_t path_length(std::span<const sample_lengths> lengths, std::span<const sample_id> order,
                                       const shape_options& shapes) {
  const std::vector<sample_lengths> cells = detail::cells_of(lengths, shapes);
  std::int64_t sum = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    sum += detail::lengths_apart(cells[index(order[i - 1])], cells[index(order[i])]);
  return sum * shapes.padding_multiple;
}

/// Sample ids along a short path through the plane of padded lengths.
///
/// Problem: the Hamiltonian path (open, both ends free) through the points (padded input, padded target) of least
/// `path_length`. Samples of equal padded lengths are one point, and stand side by side, by id, at no length. DynaPipe
/// (arXiv 2311.10418, section 4.1) poses it so for encoder-decoder models, on unpadded lengths, with groups of samples
/// within 16 tokens merged, and asks LKH.
///
/// Method: the shortest of the orders by length, by snake and by Hilbert's curve is the start. Local search with
/// neighbour lists: 2-opt and Or-opt (stretches of up to 3 points, moved and turned), the best move of one point at a
/// time, points without a move asleep until one beside them is touched (Bentley, 1992). Then iterated: two short
/// stretches of the path that lie side by side change places (a double bridge, kept local), search begins from there,
/// and what did not become shorter is taken back (Martin, Otto and Felten, 1991).
///
/// Guarantee: never longer than the start. Deterministic, independent of the order of the input but for ids of equal
/// padded lengths; ties go to the first move found, points by input, then target. A move costs O(neighbours) to find
/// and O(points it turns round) to make, at most half of all. Memory: about 80 bytes a sample, and 80 + 4 * neighbours
/// more a distinct point. For lengths of 0 to 2^31; never throws.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_by_tour(std::span<const sample_lengths> lengths, const shape_options& shapes,
                                                   const tour_options& options = {}) {
  DYNAPIPE_ASSERT(options.moves_per_point >= 0 && options.most_moves >= 0 && options.neighbours > 0);
  const std::vector<sample_lengths> cells = detail::cells_of(lengths, shapes);
  std::vector<detail::order_key> keys;
  keys.reserve(cells.size());
  for (const sample_lengths& cell : cells)
    keys.push_back({static_cast<std::uint64_t>(cell.input), static_cast<std::uint64_t>(cell.target)});
  const std::vector<sample_id> sorted = detail::sort_keys(keys);

  std::vector<sample_lengths> points;
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const sample_lengths& cell = cells[index(sorted[i])];
    if (!points.empty() && points.back() == cell) continue;
    points.push_back(cell);
    begins.push_back(i);
  }
  begins.push_back(sorted.size());

  const shape_options as_they_are{.padding_multiple = 1};
  std::vector<sample_id> start = order_by_length(points);
  std::int64_t shortest = path_length(points, start, as_they_are);
  for (std::vector<sample_id> other :
       {order_by_snake(points, as_they_are, snake_strips(points.size())), order_by_hilbert(points, as_they_are)}) {
    const std::int64_t length = path_length(points, other, as_they_are);
    if (length >= shortest) continue;
    shortest = length;
    start = std::move(other);
  }

  std::vector<std::uint32_t> path;
  path.reserve(start.size());
  for (const sample_id point : start)
    path.push_back(static_cast<std::uint32_t>(index(point)));
  const std::int64_t moves =
      std::min(options.most_moves, saturating_mul(options.moves_per_point, static_cast<std::int64_t>(points.size())));
  if (moves > 0) {
    detail::tour_search<> search{points, path, options.neighbours};
    search.run(moves, options.seed);
    path = search.path();
  }
  std::vector<sample_id> order;
  order.reserve(sorted.size());
  for (const std::uint32_t point : path)
    for (std::size_t i = begins[point]; i < begins[point + 1]; ++i)
      order.push_back(sorted[i]);
  return order;
}

}  // namespace dynapipe
