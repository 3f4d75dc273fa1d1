/// Time of the deadlock check over the number of operations: programs that pass, programs that are refused with a
/// reason, and the re-check of a certificate. 1F1B, 16 ranks.

#include <cstddef>
#include <cstdint>

#include <benchmark/benchmark.h>

#include <dynapipe/comm/deadlock.hpp>

#include "../tests/comm/deadlock_reference.hpp"

namespace {

constexpr std::size_t ranks = 16;

std::size_t operations(const deadlock_reference::rank_lists& programs) {
  std::size_t count = 0;
  for (const dynapipe::rank_program& list : programs)
    count += list.size();
  return count;
}

/// 1F1B of as many micro-batches as the benchmark's argument says.
deadlock_reference::rank_lists pipeline(const benchmark::State& state, bool naive) {
  return deadlock_reference::one_f_one_b(ranks, static_cast<std::size_t>(state.range(0)), naive);
}

void count(benchmark::State& state, const deadlock_reference::rank_lists& programs) {
  const auto ops = static_cast<double>(operations(programs));
  state.SetComplexityN(static_cast<std::int64_t>(ops));
  state.counters["ops"] = ops;
  state.counters["ops/s"] = benchmark::Counter(ops, benchmark::Counter::kIsIterationInvariantRate);
}

void accepted(benchmark::State& state) {
  const deadlock_reference::rank_lists programs = pipeline(state, false);
  for (auto _ : state)
    benchmark::DoNotOptimize(dynapipe::check_deadlock(programs));
  count(state, programs);
}

void refused(benchmark::State& state) {
  const deadlock_reference::rank_lists programs = pipeline(state, true);
  for (auto _ : state)
    benchmark::DoNotOptimize(dynapipe::check_deadlock(programs));
  count(state, programs);
}

void certificate(benchmark::State& state) {
  const deadlock_reference::rank_lists programs = pipeline(state, false);
  const dynapipe::order_certificate order = *dynapipe::find_order(programs);
  for (auto _ : state)
    benchmark::DoNotOptimize(dynapipe::certifies(programs, order));
  count(state, programs);
}

}  // namespace

BENCHMARK(accepted)->RangeMultiplier(8)->Range(16, 10'000)->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN);
BENCHMARK(refused)->RangeMultiplier(8)->Range(16, 10'000)->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN);
BENCHMARK(certificate)
    ->RangeMultiplier(8)
    ->Range(16, 10'000)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oNLogN);

BENCHMARK_MAIN();
