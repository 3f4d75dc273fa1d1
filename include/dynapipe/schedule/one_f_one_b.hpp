#pragma once

#include <algorithm>
#include <cstddef>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe {

/// The 1F1B schedule: stage s runs min(micro-batches, stages - s) forwards, then one backward and one forward in turn,
/// then the backwards that are left. Micro-batches go in the order of their ids.
///
/// With equal micro-batches, m of them on p stages, and free transfers it takes (m + p - 1)(F + B), and stage s holds
/// at most min(m, p - s) micro-batches. Right for every m >= 1 and p >= 1. O(m p), deterministic.
///
/// @throws error where some device holds more than one stage.
/// Source: PipeDream-flush (Narayanan et al., arXiv 2006.09503).
template <class Lazy = void>
[[nodiscard]] schedule one_f_one_b(const pipeline_problem& problem) {
  const std::size_t stages = problem.stages();
  const std::size_t m = problem.micro_batches;
  schedule orders(problem.devices);
  for (std::size_t s = 0; s < stages; ++s) {
    auto& order = orders[problem.device_of(s)];
    if (!order.empty()) throw error{"schedule '1f1b' needs one stage per device (use 'adaptive')"};
    const std::size_t ahead = std::min(m, stages - s);
    for (std::size_t i = 0; i < m + ahead; ++i) {
      if (i < m) order.push_back({pass_kind::forward, to_id<micro_batch_id>(i), to_id<stage_id>(s)});
      if (i + 1 >= ahead && i + 1 - ahead < m)
        order.push_back({pass_kind::backward, to_id<micro_batch_id>(i + 1 - ahead), to_id<stage_id>(s)});
    }
  }
  return orders;
}

}  // namespace dynapipe
