/// Measured models: fitting curves to a profile, laying down a table, and one question to either. Shapes vary, so that
/// neither caches nor branch predictors learn them.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/cost/profile.hpp>
#include <dynapipe/cost/table.hpp>
#include <dynapipe/ext/fit.hpp>

namespace {

using namespace dynapipe;

constexpr std::size_t questions = 1U << 12;
constexpr auto none = recompute_mode::none;

/// A layer's time without noise: its rate wobbles by 5 % with the shape.
double true_time(const shape& s) {
  const auto rows = static_cast<double>(s.rows);
  const auto input = static_cast<double>(s.input);
  const auto target = static_cast<double>(s.target);
  const bool crosses = s.target > 0;
  const double query = crosses ? target : input;
  const double line = 60'000 + rows * (130 * query + (crosses ? 70 * input : 0) + query * query / 64 +
                                       (crosses ? query * input / 40 : 0));
  return std::max(180'000.0, line) * (1 + 0.05 * std::sin(std::log2(rows) + 0.8 * std::log2(input + target)));
}

void add_point(profile& p, layer_kind kind, recompute_mode recompute, const shape& s, std::mt19937_64& random) {
  std::normal_distribution<double> noise{1, 0.02};
  profile_point point{.kind = kind, .recompute = recompute, .padded = s};
  const std::int64_t tokens = s.rows * (s.input + s.target);
  point.forward = nanoseconds{std::llround(true_time(s) * noise(random))};
  point.backward = nanoseconds{std::llround(2 * true_time(s) * noise(random))};
  point.stored = bytes{139'264 * tokens};
  point.forward_peak = bytes{180'000 * tokens};
  point.backward_peak = bytes{std::llround(220'000 * static_cast<double>(tokens) * noise(random))};
  p.points.push_back(point);
}

/// Rows and lengths of a GPT's table: powers of two, up to 65,536 tokens.
profile decoder_profile() {
  profile p{.device = "bench"};
  std::mt19937_64 random{1};
  for (std::int64_t rows = 1; rows <= 256; rows *= 2)
    for (std::int64_t length = 32; length <= 8'192; length *= 2)
      if (rows * length <= 65'536) add_point(p, layer_kind::decoder, none, {rows, length, 0}, random);
  return p;
}

/// Rows, encoder and decoder lengths of a T5's.
profile cross_profile() {
  profile p{.device = "bench"};
  std::mt19937_64 random{2};
  for (std::int64_t rows = 1; rows <= 128; rows *= 2)
    for (std::int64_t input = 32; input <= 4'096; input *= 2)
      for (std::int64_t target = 32; target <= 2'048; target *= 2)
        if (rows * (input + target) <= 65'536)
          add_point(p, layer_kind::cross_decoder, none, {rows, input, target}, random);
  return p;
}

profile profile_of(layer_kind kind) { return kind == layer_kind::decoder ? decoder_profile() : cross_profile(); }

/// Shapes of all lengths up to the longest measured, with up to 32,768 tokens.
std::vector<shape> shapes_of(layer_kind kind) {
  std::mt19937_64 random{3};
  std::vector<shape> shapes;
  const bool crosses = kind == layer_kind::cross_decoder;
  while (shapes.size() < questions) {
    const auto up_to = [&](std::int64_t most) {
      return static_cast<std::int64_t>(
          1 + random() % static_cast<std::uint64_t>(std::max<std::int64_t>(1, most >> (random() % 8))));
    };
    const shape s{up_to(128), up_to(crosses ? 4'096 : 8'192), crosses ? up_to(2'048) : 0};
    if (s.rows * (s.input + s.target) <= 16'384) shapes.push_back(s);
  }
  return shapes;
}

/// One question after another; the mean error against the truth, of shapes that are not below the least measured.
template <class Cost>
void ask_all(benchmark::State& state, const Cost& cost, layer_kind kind) {
  const std::vector<shape> shapes = shapes_of(kind);
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cost.forward(kind, shapes[i], none));
    i = (i + 1) % questions;
  }
  double off = 0;
  double count = 0;
  for (const shape& s : shapes) {
    if (s.input < 32 || (s.target > 0 && s.target < 32)) continue;
    const nanoseconds got = cost.forward(kind, s, none);
    if (got == nanoseconds::max()) continue;
    off += std::abs(static_cast<double>(got.value()) / true_time(s) - 1);
    ++count;
  }
  state.counters["error_percent"] = 100 * off / count;
  state.counters["of_shapes"] = count;
}

void table_lookup(benchmark::State& state, layer_kind kind) {
  const profile p = profile_of(kind);
  ask_all(state, table_cost{p, fitted_cost{fit(p)}}, kind);
}
BENCHMARK_CAPTURE(table_lookup, gpt, layer_kind::decoder);
BENCHMARK_CAPTURE(table_lookup, t5, layer_kind::cross_decoder);

/// Shapes beyond the table are priced by the fit.
void table_lookup_or_fit(benchmark::State& state, layer_kind kind) {
  const profile p = profile_of(kind);
  std::vector<shape> shapes = shapes_of(kind);
  for (std::size_t k = 0; k < shapes.size(); k += 2)
    shapes[k].rows *= 16;
  const table_cost cost{p, fitted_cost{fit(p)}, {.outside = outside_policy::fitted}};
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cost.forward(kind, shapes[i], none));
    i = (i + 1) % questions;
  }
}
BENCHMARK_CAPTURE(table_lookup_or_fit, gpt, layer_kind::decoder);
BENCHMARK_CAPTURE(table_lookup_or_fit, t5, layer_kind::cross_decoder);

void fitted_lookup(benchmark::State& state, layer_kind kind) {
  ask_all(state, fitted_cost{fit(profile_of(kind))}, kind);
}
BENCHMARK_CAPTURE(fitted_lookup, gpt, layer_kind::decoder);
BENCHMARK_CAPTURE(fitted_lookup, t5, layer_kind::cross_decoder);

void table_build(benchmark::State& state, layer_kind kind) {
  const profile p = profile_of(kind);
  const fitted_cost fitted{fit(p)};
  for (auto _ : state)
    benchmark::DoNotOptimize(table_cost{p, fitted});
  state.counters["points"] = static_cast<double>(p.points.size());
}
BENCHMARK_CAPTURE(table_build, gpt, layer_kind::decoder)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(table_build, t5, layer_kind::cross_decoder)->Unit(benchmark::kMillisecond);

/// 4,000 points with five amounts each: of one recomputation, or of three.
void fit_profile(benchmark::State& state) {
  profile p{.device = "bench"};
  std::mt19937_64 random{4};
  const auto modes = static_cast<std::size_t>(state.range(0));
  for (std::int64_t k = 0; p.points.size() < 4'000; ++k) {
    const auto recompute = static_cast<recompute_mode>(p.points.size() % modes);
    add_point(p, layer_kind::decoder, recompute, {1 + k / 40, 32 + 104 * (k % 40), 0}, random);
    profile_point& point = p.points.back();
    if (random() % 20 == 0) point.forward = point.forward * 2;
  }
  fitted_costs costs;
  for (auto _ : state)
    benchmark::DoNotOptimize(costs = fit(p));
  const fitted_cost cost{costs};
  double off = 0;
  for (const profile_point& point : p.points)
    off += std::abs(static_cast<double>(cost.forward(point.kind, point.padded, point.recompute).value()) /
                        true_time(point.padded) -
                    1);
  state.counters["error_percent"] = 100 * off / static_cast<double>(p.points.size());
}
BENCHMARK(fit_profile)->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

}  // namespace
