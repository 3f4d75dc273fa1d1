#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/batch/spread_problem.hpp>

namespace dynapipe::detail {

/// A lower bound on the scaled objective where no replica has more than `most` items and each has `least` at least.
///
/// Let V be the objective, x the times, longest first. A replica whose longest item is L holds at most
/// (V - (devices - 1) L) / stages_per_device of work.
/// - Of the q R + 1 longest items, q + 1 share a replica.
/// - The longest item's replica has `least` - 1 others.
/// - Number the replicas by their longest item, longest first. The items that are longer than the longest of the r-th
///   lie on the r - 1 before it: they are `most` (r - 1) at most, and together with the shortest items that make them
///   `least` (r - 1), no more work than those hold. Of all numbers j of items for which that can be, the largest makes
///   the longest of the r-th at least the item at j. What all replicas then hold must be all the work. The least V for
///   which it is, is found by bisection.
///
/// `longest`, where given, takes these longest items of the replicas, as far as they are needed to hold all.
/// O((n + R) log V).
template <class Lazy = void>
wide_int spread_bound(const spread_problem& p, std::int64_t least, std::int64_t most,
                      std::vector<std::size_t>* longest = nullptr) {
  const std::size_t n = p.items.size();
  const std::size_t replicas = p.replicas();
  const auto time = [&](std::size_t i) { return p.items[i].time; };
  std::vector<wide_int> before(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i)
    before[i + 1] = before[i] + time(i);

  wide_int bound = (p.sum * p.options.stages_per_device + p.options.replicas - 1) / p.options.replicas;
  const std::size_t others = std::min(n - 1, static_cast<std::size_t>(std::max<std::int64_t>(1, least) - 1));
  bound = std::max(bound, p.value(time(0) + before[n] - before[n - others], time(0)));
  for (std::size_t q = 1; q * replicas < n; ++q) {
    const std::size_t end = q * replicas + 1;
    bound = std::max(bound, p.value(before[end] - before[end - q - 1], time(end - q - 1)));
  }
  if (p.options.devices == 1) return bound;

  const auto holds_all = [&](wide_int v, std::vector<std::size_t>* firsts) {
    wide_int held = 0;
    std::size_t at = 0;
    for (std::size_t r = 0; r < replicas; ++r) {
      const wide_int counted = static_cast<wide_int>(most) * static_cast<wide_int>(r);
      const std::size_t needed = std::min(n, static_cast<std::size_t>(least) * r);
      const auto work = [&](std::size_t longer) {
        return before[longer] + before[n] - before[n - (needed > longer ? needed - longer : 0)];
      };
      while (at < n && static_cast<wide_int>(at) < counted && work(at + 1) <= held)
        ++at;
      if (at == n) return true;
      if (firsts) firsts->push_back(at);
      const wide_int room = v - p.value(0, time(at));
      if (room < 0) return false;
      held += room / p.options.stages_per_device;
      if (held >= before[n]) return true;
    }
    return false;
  };
  wide_int enough = p.value(p.sum, time(0));
  while (bound < enough) {
    const wide_int middle = bound + (enough - bound) / 2;
    if (holds_all(middle, nullptr)) {
      enough = middle;
    } else {
      bound = middle + 1;
    }
  }
  if (longest) (void)holds_all(bound, longest);
  return bound;
}

}  // namespace dynapipe::detail
