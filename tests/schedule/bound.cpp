#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/schedule/bound.hpp>

#include "equal_problem.hpp"
#include "random_problem.hpp"

using namespace dynapipe;

namespace {

/// The shortest makespan of any schedule with pure delays, by trying every next operation: semi-active schedules of
/// which one is optimal. For a few micro-batches and stages on a device each.
class exhaustive {
 public:
  explicit exhaustive(const pipeline_problem& p)
      : p_{p}, done_(p.micro_batches, 0), free_(p.devices, 0), ready_(p.micro_batches, 0) {}

  std::int64_t best() {
    go(0);
    return best_;
  }

 private:
  void go(std::int64_t end) {
    if (end >= best_) return;
    bool finished = true;
    const std::size_t stages = p_.stages();
    for (std::size_t m = 0; m < p_.micro_batches; ++m) {
      if (done_[m] == 2 * stages) continue;
      finished = false;
      const bool forward = done_[m] < stages;
      const std::size_t s = forward ? done_[m] : 2 * stages - 1 - done_[m];
      const std::size_t d = p_.device_of(s);
      const std::int64_t was_free = free_[d], was_ready = ready_[m];
      const stage_cost& cost = p_.cost_of(m, s);
      const std::int64_t finish = std::max(was_free, was_ready) + (forward ? cost.forward : cost.backward).value();
      free_[d] = finish;
      ready_[m] = finish;
      if (forward && s + 1 < stages) ready_[m] += p_.hop(m, s).forward.value();
      if (!forward && s > 0) ready_[m] += p_.hop(m, s - 1).backward.value();
      ++done_[m];
      go(std::max(end, finish));
      --done_[m];
      free_[d] = was_free;
      ready_[m] = was_ready;
    }
    if (finished) best_ = std::min(best_, end);
  }

  const pipeline_problem& p_;
  std::vector<std::size_t> done_;
  std::vector<std::int64_t> free_;
  std::vector<std::int64_t> ready_;
  std::int64_t best_ = int64_limit;
};

}  // namespace

TEST_CASE("lower_bound: never above the optimum, and often equal to it") {
  int equal = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    CAPTURE(i);
    test::random_source random{4'000 + i};
    const bool wide = i % 2 == 0;
    pipeline_problem p = test::random_problem(random, {.stages = wide ? 2 : 4, .micro_batches = wide ? 3 : 2});
    p.queues = std::nullopt;
    const std::int64_t optimum = exhaustive{p}.best();
    CHECK(lower_bound(p).value() <= optimum);
    equal += lower_bound(p).value() == optimum ? 1 : 0;
  }
  CHECK(equal > 100);
}

TEST_CASE("lower_bound: three micro-batches by hand") {
  pipeline_problem p = test::equal_problem(2, 3, 0, 0);
  for (std::size_t m = 0; m < 3; ++m)
    for (std::size_t s = 0; s < 2; ++s)
      p.cost[2 * m + s] = {.forward = nanoseconds{static_cast<std::int64_t>(m + 1)},
                           .backward = nanoseconds{static_cast<std::int64_t>(2 * m + 2)}};
  for (hop_cost& hop : p.hops)
    hop = {bytes{1}, nanoseconds{5}, bytes{1}, nanoseconds{7}};
  // Device 1: its first work comes after 1 + 5, all its work is 18, and at least 7 + 2 follow. The critical path is
  // that of micro-batch 2: 2 x 9 + 12.
  CHECK(lower_bound(p) == nanoseconds{33});
}
