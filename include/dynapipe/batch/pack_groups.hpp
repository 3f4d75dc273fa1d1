#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/pack.hpp>

namespace dynapipe {

/// Samples joined to items. Item i stands for `samples` [begin[i], begin[i + 1]).
struct grouped_items {
  std::vector<pack_item> items;      ///< in the order of each group's first sample
  std::vector<std::size_t> begin;    ///< where each item starts in `samples`, and the end of the last
  std::vector<std::size_t> samples;  ///< positions in the input, ascending within an item

  [[nodiscard]] std::span<const std::size_t> of(std::size_t item) const {
    return std::span{samples}.subspan(begin[item], begin[item + 1] - begin[item]);
  }
};

/// Joins samples that have the same group: sizes, works and numbers of samples add up. `group_of` has a group for each
/// sample; what numbers groups have does not matter. O(n log n). @throws error where a sum does not fit 64 bits.
template <class Lazy = void>
[[nodiscard]] grouped_items join_groups(std::span<const pack_item> samples, std::span<const std::int64_t> group_of) {
  DYNAPIPE_ASSERT(samples.size() == group_of.size());
  struct member {
    std::int64_t group = 0;
    std::size_t first = 0;
    std::size_t sample = 0;
  };
  std::vector<member> order(samples.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = {group_of[i], 0, i};
  std::sort(order.begin(), order.end(), [](const member& a, const member& b) {
    return a.group != b.group ? a.group < b.group : a.sample < b.sample;
  });
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i].first = i > 0 && order[i - 1].group == order[i].group ? order[i - 1].first : order[i].sample;
  std::sort(order.begin(), order.end(), [](const member& a, const member& b) {
    return a.first != b.first ? a.first < b.first : a.sample < b.sample;
  });
  grouped_items result;
  const auto add = [](auto& sum, auto value, std::int64_t group) {
    using number = std::remove_reference_t<decltype(sum)>;
    if (value > 0 && sum > std::numeric_limits<number>::max() - value)
      throw error{"group " + std::to_string(group) + ": its samples add up to more than an integer holds"};
    sum = static_cast<number>(sum + value);
  };
  for (const member& m : order) {
    const pack_item& sample = samples[m.sample];
    if (m.first == m.sample) {
      result.items.push_back(sample);
      result.begin.push_back(result.samples.size());
    } else {
      pack_item& item = result.items.back();
      add(item.size, sample.size, m.group);
      add(item.work, sample.work, m.group);
      add(item.samples, sample.samples, m.group);
    }
    result.samples.push_back(m.sample);
  }
  result.begin.push_back(result.samples.size());
  return result;
}

/// `pack` for samples some of which stay together: those of a group share one micro-batch. The result has positions of
/// samples. Guarantee, complexity and errors are those of `pack` and `join_groups`.
///
/// @throws unsatisfiable also where a sample, or a group, is above the cap: the text names it.
template <class Lazy = void>
[[nodiscard]] pack_result pack_groups(std::span<const pack_item> samples, std::span<const std::int64_t> group_of,
                                      const pack_options& options) {
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i].size < 0 || samples[i].work < 0 || samples[i].samples < 1 || samples[i].size > options.cap)
      return pack(samples, options);  // which says so of the sample
  const grouped_items grouped = join_groups(samples, group_of);
  for (std::size_t i = 0; i < grouped.items.size(); ++i)
    if (grouped.items[i].size > options.cap)
      throw unsatisfiable{"group " + std::to_string(group_of[grouped.of(i).front()]) + " of " +
                              std::to_string(grouped.of(i).size()) + " samples, the first of them sample " +
                              std::to_string(grouped.of(i).front()) + ", has aligned size " +
                              std::to_string(grouped.items[i].size) + ", above the cap of " +
                              std::to_string(options.cap) + ": split the group or raise the cap",
                          batch_constraint::groups};
  pack_result result = pack(std::span<const pack_item>{grouped.items}, options);
  std::vector<std::size_t> expanded;
  expanded.reserve(samples.size());
  std::vector<std::size_t> begin{0};
  for (std::size_t m = 0; m < result.micro_batches(); ++m) {
    for (const std::size_t item : result.of(m))
      expanded.insert(expanded.end(), grouped.of(item).begin(), grouped.of(item).end());
    std::sort(expanded.begin() + static_cast<std::ptrdiff_t>(begin.back()), expanded.end());
    begin.push_back(expanded.size());
  }
  result.items = std::move(expanded);
  result.batch_begin = std::move(begin);
  return result;
}

}  // namespace dynapipe
