#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/ids.hpp>

namespace dynapipe {

/// Sample ids by length, longest first: by input, then target. Equal lengths keep the order of their ids, so that the
/// result is the same everywhere. Neighbours have similar lengths, which is what a contiguous partition needs.
///
/// O(n log n), never throws. Source: DynaPipe (arXiv 2311.10418), section 4.1.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_by_length(std::span<const sample_lengths> lengths) {
  std::vector<sample_id> order(lengths.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = to_id<sample_id>(i);
  std::sort(order.begin(), order.end(), [&](sample_id a, sample_id b) {
    const sample_lengths& x = lengths[index(a)];
    const sample_lengths& y = lengths[index(b)];
    if (x.input != y.input) return x.input > y.input;
    if (x.target != y.target) return x.target > y.target;
    return a < b;
  });
  return order;
}

}  // namespace dynapipe
