#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <dynapipe/batch/constraint.hpp>

namespace dynapipe::detail {

/// Splits micro-batches of a cut, given by the position of their first samples, until their number is a multiple of
/// `multiple`: again and again the one, and there the place, that adds the least time. No micro-batch gets longer, so
/// that every limit holds. Ties: the first micro-batch, the largest first part.
///
/// @throws unsatisfiable where there are fewer samples than micro-batches asked for. O(samples + splits x window).
template <class Kernel>
void split_to_multiple(const Kernel& kernel, std::vector<std::size_t>& cuts, std::int64_t multiple) {
  const std::size_t samples = kernel.samples();
  const auto each = static_cast<std::size_t>(multiple);
  const std::size_t wanted = (cuts.size() + each - 1) / each * each;
  if (wanted > samples)
    throw unsatisfiable{"a number of micro-batches that is a multiple of " + std::to_string(multiple) +
                            " and at least " + std::to_string(cuts.size()) + " needs " + std::to_string(wanted) +
                            " samples, there are " + std::to_string(samples) +
                            " (allow dummies, or a smaller multiple)",
                        batch_constraint::count_multiple};
  struct split {
    std::int64_t added;
    std::size_t first;
    std::size_t count;
    std::size_t at;
  };
  const auto later = [](const split& a, const split& b) {
    return a.added != b.added ? a.added > b.added : a.first > b.first;
  };
  std::vector<split> heap;
  const auto push = [&](std::size_t first, std::size_t count) {
    if (count < 2) return;
    split best{0, first, count, 0};
    for (std::size_t at = count; --at > 0;) {
      const std::int64_t both = kernel.time_of(first, at) + kernel.time_of(first + at, count - at);
      if (best.at == 0 || both < best.added) best = {both, first, count, at};
    }
    best.added -= kernel.time_of(first, count);
    heap.push_back(best);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  if (wanted == cuts.size()) return;
  for (std::size_t m = 0; m < cuts.size(); ++m)
    push(cuts[m], (m + 1 < cuts.size() ? cuts[m + 1] : samples) - cuts[m]);
  while (cuts.size() < wanted) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const split now = heap.back();
    heap.pop_back();
    cuts.push_back(now.first + now.at);
    push(now.first, now.at);
    push(now.first + now.at, now.count - now.at);
  }
  std::sort(cuts.begin(), cuts.end());
}

}  // namespace dynapipe::detail
