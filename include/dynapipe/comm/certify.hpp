#pragma once

#include <cstddef>
#include <vector>

#include <dynapipe/comm/deadlock.hpp>
#include <dynapipe/comm/rank_program.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe {

/// The programs of a pipeline's devices in the terms of the deadlock check: computations and transfers in list order,
/// each named by its number in `operation_index`. Waits need no place of their own: in one queue whose transfers are
/// rendezvous, what stands behind a transfer waits for it already. O(steps).
template <class Lazy = void>
[[nodiscard]] std::vector<rank_program> rank_programs(const pipeline_problem& problem, const program& lists) {
  const operation_index number{problem};
  std::vector<rank_program> result(lists.size());
  for (std::size_t d = 0; d < lists.size(); ++d) {
    for (const program_step& step : lists[d]) {
      const std::size_t id = number.of(step);
      const std::size_t s = index(step.stage);
      const bool activation = step.tensor == tensor_kind::activation;
      switch (step.what) {
        case program_step::action::forward:
        case program_step::action::backward: result[d].push_back(rank_operation::compute(id)); break;
        case program_step::action::send: {
          const std::size_t to = activation ? s + 1 : s - 1;
          const hop_cost& hop = problem.hop(index(step.mb), activation ? s : s - 1);
          result[d].push_back(
              rank_operation::send(problem.stage_device[to], id, activation ? hop.forward_bytes : hop.backward_bytes));
          break;
        }
        case program_step::action::recv: {
          const std::size_t from = activation ? s - 1 : s + 1;
          const hop_cost& hop = problem.hop(index(step.mb), activation ? s - 1 : s);
          result[d].push_back(rank_operation::recv(problem.stage_device[from], id,
                                                   activation ? hop.forward_bytes : hop.backward_bytes));
          break;
        }
        case program_step::action::wait_send:
        case program_step::action::wait_recv: break;
      }
    }
  }
  return result;
}

/// Proves that a program cannot deadlock, with the global order as certificate, or says who waits for whom. See
/// `check_deadlock`.
template <class Lazy = void>
[[nodiscard]] deadlock_report certify(const pipeline_problem& problem, const program& lists) {
  return check_deadlock(rank_programs(problem, lists));
}

}  // namespace dynapipe
