#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/comm/certify.hpp>
#include <dynapipe/comm/order.hpp>
#include <dynapipe/plan/validate.hpp>
#include <dynapipe/schedule/adaptive.hpp>
#include <dynapipe/schedule/bound.hpp>
#include <dynapipe/schedule/one_f_one_b.hpp>
#include <dynapipe/schedule/simulate.hpp>

#include "../plan/plan_of_problem.hpp"
#include "../schedule/random_problem.hpp"
#include "../schedule/reference.hpp"

using namespace dynapipe;

namespace {

constexpr std::uint64_t seed = 20'261'130;

/// Judges a program by those that did not make it: the validator's replay, and the deadlock check with its certificate.
/// Returns its length.
nanoseconds judge(const pipeline_problem& p, const program& lists, const std::vector<bytes>& fixed) {
  const std::optional<timeline> times = simulate(p, lists);
  REQUIRE(times.has_value());
  for (const violation& fault : validate(test::plan_of_problem(p, lists, *times, fixed)))
    FAIL_CHECK(fault.where << ": " << fault.what);
  const std::vector<rank_program> ranks = rank_programs(p, lists);
  const deadlock_report report = check_deadlock(ranks);
  CHECK(report.accepted);
  CHECK(certifies(ranks, report.certificate));
  CHECK(times->makespan >= lower_bound(p));
  return times->makespan;
}

}  // namespace

TEST_CASE("10,000 random pipelines: every plan holds, every refusal is right") {
  int planned = 0, refused = 0, in_order = 0, too_large = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    CAPTURE(seed);
    CAPTURE(i);
    test::random_source random{seed + i};
    const pipeline_problem p = test::random_problem(random);
    std::vector<bytes> fixed;
    for (std::size_t d = 0; d < p.devices; ++d)
      fixed.emplace_back(random.from(0, 1000));
    try {
      judge(p, adaptive(p), fixed);
      ++planned;
    } catch (const infeasible& refusal) {
      ++refused;
      CHECK(refusal.needed() > refusal.available());
      bool alone_too_big = false;
      for (std::size_t m = 0; m < p.micro_batches; ++m) {
        pipeline_problem one = p;
        one.micro_batches = 1;
        const auto cut = [&](auto& list, std::size_t width) {
          const auto from = list.begin() + static_cast<std::ptrdiff_t>(m * width);
          list = {from, from + static_cast<std::ptrdiff_t>(width)};
        };
        cut(one.cost, p.stages());
        cut(one.loads, p.stages());
        cut(one.hops, p.stages() - 1);
        alone_too_big = alone_too_big || !test::some_order_fits(one);
      }
      CHECK(alone_too_big);
    }
    if (p.stages() == p.devices) {
      try {
        judge(p, order_transfers(p, one_f_one_b(p)), fixed);
        ++in_order;
      } catch (const error&) {
        // A fixed order may need more memory than there is; that adaptive plans exist is checked above.
        ++too_large;
      }
    }
  }
  MESSAGE("seed " << seed << ": " << planned << " planned, " << refused << " refused; 1F1B planned " << in_order
                  << ", refused " << too_large);
  CHECK(planned > 8'000);
  CHECK(refused > 300);
  CHECK(in_order > 1'000);
}

TEST_CASE("small pipelines are refused exactly where no order of operations fits") {
  int planned = 0, refused = 0;
  for (std::uint64_t i = 0; i < 3'000; ++i) {
    CAPTURE(seed);
    CAPTURE(i);
    test::random_source random{seed + 1'000'000 + i};
    const pipeline_problem p = test::random_problem(random, {.stages = 3, .micro_batches = 3});
    bool made = true;
    try {
      static_cast<void>(adaptive(p));
    } catch (const infeasible&) {
      made = false;
    }
    CHECK(made == test::some_order_fits(p));
    ++(made ? planned : refused);
  }
  MESSAGE("seed " << seed << ": " << planned << " planned, " << refused << " refused");
  CHECK(planned > 1'000);
  CHECK(refused > 100);
}
