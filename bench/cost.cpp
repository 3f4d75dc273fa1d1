/// The analytic model: nanoseconds of one question. Shapes vary, so that neither caches nor branch predictors learn
/// them.

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/memory.hpp>

namespace {

using namespace dynapipe;

constexpr std::size_t questions = 1U << 12;

std::vector<shape> padded_shapes(bool encoder_decoder) {
  std::mt19937_64 random{1};
  std::vector<shape> shapes;
  for (std::size_t i = 0; i < questions; ++i) {
    const auto length = [&] { return static_cast<std::int64_t>(1 + random() % (std::uint64_t{8} << (random() % 14))); };
    shapes.push_back({static_cast<std::int64_t>(1 + random() % 64), length(), encoder_decoder ? length() : 0});
  }
  return shapes;
}

std::vector<varlen_shape> varlen_shapes(std::int64_t window) {
  std::vector<varlen_shape> shapes;
  for (const shape& s : padded_shapes(true))
    shapes.push_back(with_sample(with_sample({}, s.input, 0, window), s.target));
  return shapes;
}

template <class Shape, class Ask>
void ask_all(benchmark::State& state, const std::vector<Shape>& shapes, Ask&& ask) {
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ask(shapes[i]));
    i = (i + 1) % questions;
  }
}

void analytic_forward(benchmark::State& state, const model_spec& model) {
  const analytic_cost cost{model, presets::h100()};
  const layer_kind kind = model.decoder_kind();
  ask_all(state, padded_shapes(model.encoder_decoder()),
          [&](const shape& s) { return cost.forward(kind, s, recompute_mode::none); });
}
BENCHMARK_CAPTURE(analytic_forward, gpt, presets::gpt_6_7b());
BENCHMARK_CAPTURE(analytic_forward, t5, presets::t5_11b());
BENCHMARK_CAPTURE(analytic_forward, mistral, presets::mistral_7b());
BENCHMARK_CAPTURE(analytic_forward, deepseek, presets::deepseek_v3());

void analytic_forward_varlen(benchmark::State& state, const model_spec& model) {
  const analytic_cost cost{model, presets::h100()};
  ask_all(state, varlen_shapes(model.window),
          [&](const varlen_shape& s) { return cost.forward(layer_kind::decoder, s, recompute_mode::none); });
}
BENCHMARK_CAPTURE(analytic_forward_varlen, llama, presets::llama_3_8b());

void analytic_stored(benchmark::State& state) {
  const analytic_cost cost{presets::gpt_6_7b(), presets::h100()};
  ask_all(state, padded_shapes(false),
          [&](const shape& s) { return cost.stored(layer_kind::decoder, s, recompute_mode::selective); });
}
BENCHMARK(analytic_stored);

/// All kinds and modes in turn: nothing stays in the first cache line.
void analytic_any_pass(benchmark::State& state) {
  const analytic_cost cost{presets::t5_11b(), presets::h100()};
  std::size_t n = 0;
  ask_all(state, padded_shapes(true), [&](const shape& s) {
    n = (n + 7) % 15;
    return cost.backward(static_cast<layer_kind>(n % 5), s, static_cast<recompute_mode>(n / 5));
  });
}
BENCHMARK(analytic_any_pass);

void rows_that_fit(benchmark::State& state) {
  const analytic_cost cost{presets::gpt_6_7b(), presets::h100()};
  ask_all(state, padded_shapes(false), [&](const shape& s) {
    return largest_rows(cost, {layer_kind::decoder, 8, 4}, shape{1, s.input, 0}, recompute_mode::none, gib(40));
  });
}
BENCHMARK(rows_that_fit);

}  // namespace
