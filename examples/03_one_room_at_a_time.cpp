/// Uses the rooms of the library one by one, with plain values in and out: cut, spread, schedule, time, bound, and the
/// proof that nothing can deadlock.
///
/// `planner` does the same in one call.

#include <optional>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/comm/certify.hpp>
#include <dynapipe/dynapipe.hpp>

using namespace dynapipe;

int main() {
  // Lengths, longest first, and what a micro-batch of a shape costs: 1 us a token and 50 us beside.
  const std::vector<sample_lengths> lengths{{900, 0, 9}, {610, 0, 9}, {600, 0, 9},
                                            {130, 0, 9}, {120, 0, 9}, {40, 0, 9}};
  const auto time = [](const shape& s) -> std::optional<nanoseconds> {
    if (s.rows * s.input > 2'000) return std::nullopt;  // more does not fit
    return nanoseconds{50'000 + 1'000 * s.rows * s.input};
  };
  const auto cut = partition(lengths, {.padding_multiple = 8}, time, {.devices = 2, .convex_rows = true});
  fmt::print("{} micro-batches, the slowest takes {} us\n", cut->cuts.size(), cut->t_max.value() / 1'000);

  // Two stages on two devices run them; a third of each time is forward, transfers take 20 us.
  pipeline_problem problem{.devices = 2,
                           .micro_batches = cut->cuts.size(),
                           .stage_device = {device_id{0}, device_id{1}},
                           .cost = {},
                           .hops = std::vector<hop_cost>(cut->cuts.size(), {bytes{4'096}, nanoseconds{20'000},
                                                                            bytes{4'096}, nanoseconds{20'000}}),
                           .loads = std::vector<bytes>(2 * cut->cuts.size()),
                           .capacity = {mib(1), mib(1)}};
  for (std::size_t m = 0; m < cut->cuts.size(); ++m) {
    const std::size_t end = m + 1 < cut->cuts.size() ? cut->cuts[m + 1] : lengths.size();
    const auto rows = static_cast<std::int64_t>(end - cut->cuts[m]);
    const nanoseconds whole = *time({rows, padded_length(lengths[cut->cuts[m]].input, {}), 0});
    for (int stage = 0; stage < 2; ++stage)
      problem.cost.push_back({.forward = whole / 3,
                              .backward = whole - whole / 3,
                              .stored = bytes{100'000},
                              .forward_peak = bytes{150'000},
                              .backward_peak = bytes{50'000}});
  }

  const program plain = order_transfers(problem, one_f_one_b(problem));
  const program better = adaptive(problem);
  fmt::print("1F1B {} us, adaptive {} us, no schedule is faster than {} us\n",
             simulate(problem, plain)->makespan.value() / 1'000, simulate(problem, better)->makespan.value() / 1'000,
             lower_bound(problem).value() / 1'000);
  const deadlock_report proof = certify(problem, better);
  fmt::print("deadlock-free: {}\n", proof.accepted);
  return proof.accepted ? 0 : 1;
}
