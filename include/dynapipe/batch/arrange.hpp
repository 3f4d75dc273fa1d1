#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

/// The order in which a replica runs its micro-batches.
enum class micro_batch_order : std::uint8_t {
  ramp,            ///< short ones at both ends, where a pipeline fills and drains, long ones in the middle
  largest_first,   ///< an allocator's buffers never have to grow
  smallest_first,  ///< the first results come soonest
  arrival          ///< by the smallest sample id
};

inline constexpr name_table<micro_batch_order, 4> micro_batch_order_names{
    {{micro_batch_order::ramp, "ramp"},
     {micro_batch_order::largest_first, "largest_first"},
     {micro_batch_order::smallest_first, "smallest_first"},
     {micro_batch_order::arrival, "arrival"}}};

[[nodiscard]] constexpr std::string_view to_string(micro_batch_order value) {
  return name_in(micro_batch_order_names, value);
}

/// What the order of micro-batches goes by. A dummy has the largest id as its first sample.
struct arrange_key {
  nanoseconds time{0};
  sample_id first{};  ///< the smallest id among its samples
};

/// Orders micro-batches: the k-th to run is the one at position `result[k]`. Equal keys keep their positions' order,
/// and in a ramp the second of two equal ones stands behind the peak.
///
/// `ramp` takes the micro-batches longest first and sets them down in the middle, before and behind the peak in turn.
/// O(n log n), never throws.
template <class Lazy = void>
[[nodiscard]] std::vector<std::size_t> arrange(std::span<const arrange_key> keys, micro_batch_order order) {
  std::vector<std::size_t> sorted(keys.size());
  for (std::size_t i = 0; i < sorted.size(); ++i)
    sorted[i] = i;
  const bool by_id = order == micro_batch_order::arrival;
  const bool rising = order == micro_batch_order::smallest_first;
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    if (by_id && keys[a].first != keys[b].first) return keys[a].first < keys[b].first;
    if (!by_id && keys[a].time != keys[b].time) return (keys[a].time < keys[b].time) == rising;
    return a < b;
  });
  if (order != micro_batch_order::ramp) return sorted;
  std::vector<std::size_t> ramp;
  ramp.reserve(sorted.size());
  for (std::size_t i = sorted.size(); i-- > 0;)
    if (i % 2 == 0) ramp.push_back(sorted[i]);
  for (std::size_t i = 1; i < sorted.size(); i += 2)
    ramp.push_back(sorted[i]);
  return ramp;
}

/// One order for all replicas, for micro-batches that run in lock-step: the m-th of all replicas stay together. A step
/// counts as its slowest micro-batch and its smallest sample id. All replicas must have as many micro-batches.
///
/// O(n + m log m) for n micro-batches in m steps, never throws.
template <class Lazy = void>
[[nodiscard]] std::vector<std::size_t> arrange_steps(std::span<const std::vector<arrange_key>> replicas,
                                                     micro_batch_order order) {
  if (replicas.empty()) return {};
  std::vector<arrange_key> steps = replicas.front();
  for (const std::vector<arrange_key>& replica : replicas) {
    DYNAPIPE_ASSERT(replica.size() == steps.size());
    for (std::size_t m = 0; m < steps.size(); ++m) {
      steps[m].time = std::max(steps[m].time, replica[m].time);
      steps[m].first = std::min(steps[m].first, replica[m].first);
    }
  }
  return arrange(std::span<const arrange_key>{steps}, order);
}

/// `values` in the order of a permutation: the k-th is the one that was at `order[k]`. O(n), never throws.
template <class Value>
[[nodiscard]] std::vector<Value> arranged(const std::vector<Value>& values, std::span<const std::size_t> order) {
  DYNAPIPE_ASSERT(values.size() == order.size());
  std::vector<Value> result;
  result.reserve(values.size());
  for (const std::size_t at : order)
    result.push_back(values[at]);
  return result;
}

}  // namespace dynapipe
