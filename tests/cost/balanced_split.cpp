#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/balanced_split.hpp>

using namespace dynapipe;

namespace {

/// Times by kind and in proportion to tokens; everything else is nothing.
struct simple_model {
  std::int64_t per_token[5];
  std::int64_t floor = 0;
  nanoseconds time(layer_kind kind, const shape& s) const {
    const std::int64_t length =
        kind == layer_kind::cross_decoder || (kind == layer_kind::head && s.target > 0) ? s.target : s.input;
    if (s.rows * length > 1'000'000) return nanoseconds::max();
    return nanoseconds{std::max(floor, per_token[static_cast<std::size_t>(kind)] * s.rows * length)};
  }
  nanoseconds forward(layer_kind kind, const shape& s, recompute_mode) const { return time(kind, s); }
  nanoseconds backward(layer_kind kind, const shape& s, recompute_mode) const {
    return time(kind, s) == nanoseconds::max() ? nanoseconds::max() : 2 * time(kind, s);
  }
  bytes stored(layer_kind, const shape&, recompute_mode) const { return bytes{0}; }
  bytes forward_peak(layer_kind, const shape&, recompute_mode) const { return bytes{0}; }
  bytes backward_peak(layer_kind, const shape&, recompute_mode) const { return bytes{0}; }
  bytes state(layer_kind) const { return bytes{0}; }
  std::string refusal(layer_kind, const shape& s, recompute_mode) const {
    return s.rows * s.input > 1'000'000 ? "more than a million tokens" : "";
  }
};

model_spec model_of(std::int64_t encoder, std::int64_t decoder) {
  model_spec model = encoder > 0 ? presets::t5("t5", 1) : presets::gpt("gpt", 1, 64, 4);
  model.encoder_layers = encoder;
  model.decoder_layers = decoder;
  return model;
}

wide_int busiest(const model_spec& model, const std::vector<stage_spec>& split, const simple_model& cost,
                 const std::vector<weighted_shape>& mix) {
  wide_int most = 0;
  for (const stage_spec& stage : split) {
    wide_int sum = 0;
    for (const auto& [s, weight] : mix) {
      const stage_cost c = cost_of_stage(model, stage, cost, s, recompute_mode::none);
      sum += static_cast<wide_int>(weight) * (c.forward.value() + c.backward.value());
    }
    most = std::max(most, sum);
  }
  return most;
}

std::vector<std::int64_t> counts_of(const std::vector<stage_spec>& split) {
  std::vector<std::int64_t> result;
  for (const stage_spec& stage : split)
    result.push_back(stage.encoder.count() + stage.decoder.count());
  return result;
}

/// Calls `visit` with all ways of writing `layers` as a sum of `parts` positive counts, in rising order of the first.
template <class Visit>
void each_cut(std::int64_t layers, std::int64_t parts, std::vector<std::int64_t>& counts, Visit&& visit) {
  if (parts == 1) {
    counts.push_back(layers);
    visit(counts);
    counts.pop_back();
    return;
  }
  for (std::int64_t n = 1; n <= layers - (parts - 1); ++n) {
    counts.push_back(n);
    each_cut(layers - n, parts - 1, counts, visit);
    counts.pop_back();
  }
}

}  // namespace

TEST_CASE("balanced_split: the least busy busiest stage, ties as documented, against all cuts") {
  constexpr unsigned seed = 31'415;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto from = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  int uneven = 0, tied = 0;
  for (int round = 0; round < 3'000; ++round) {
    CAPTURE(round);
    const bool both = from(0, 1) == 1;
    const model_spec model = model_of(both ? from(1, 5) : 0, from(1, 6));
    simple_model cost{{from(0, 8), from(0, 5), from(0, 5), from(0, 5), from(0, 20)}, from(0, 2) == 0 ? 500 : 0};
    std::vector<weighted_shape> mix(static_cast<std::size_t>(from(1, 4)));
    for (weighted_shape& one : mix)
      one = {{from(1, 4), 8 * from(1, 20), both ? 8 * from(1, 20) : 0}, from(1, 5)};
    const std::int64_t stages = from(1, model.layers());
    const std::vector<stage_spec> split = balanced_split(model, stages, cost, mix, recompute_mode::none);
    REQUIRE_NOTHROW(require_split(model, split, static_cast<std::size_t>(stages)));

    wide_int least = 0;
    std::int64_t least_squares = 0;
    std::vector<std::int64_t> best, counts;
    int ties = 0;
    each_cut(model.layers(), stages, counts, [&](const std::vector<std::int64_t>& cut) {
      const wide_int time = busiest(model, cut_layers(model, cut), cost, mix);
      std::int64_t squares = 0;
      for (const std::int64_t n : cut)
        squares += n * n;
      ties = best.empty() || time < least ? 0 : ties + (time == least ? 1 : 0);
      if (best.empty() || time < least || (time == least && squares < least_squares)) {
        least = time;
        least_squares = squares;
        best = cut;
      }
    });
    CHECK(busiest(model, split, cost, mix) == least);
    CHECK(counts_of(split) == best);
    if (ties > 0) ++tied;
    if (best != counts_of(split_layers(model, stages))) ++uneven;
  }
  MESSAGE(uneven << " differ from the even split, " << tied << " had ties");
  CHECK(uneven > 500);
  CHECK(tied > 500);
}

TEST_CASE("balanced_split: a heavy head takes layers off the last stage, by hand") {
  const model_spec model = model_of(0, 8);
  const std::vector<weighted_shape> mix{{{1, 8, 0}, 1}};
  // A layer takes 24 both ways; the head as much as three of them.
  const simple_model cost{{0, 0, 1, 0, 3}};
  CHECK(counts_of(balanced_split(model, 4, cost, mix, recompute_mode::none)) == std::vector<std::int64_t>{2, 2, 3, 1});
  CHECK(counts_of(split_layers(model, 4)) == std::vector<std::int64_t>{2, 2, 2, 2});
  // The embedding as well: 3 + x, and the others share the rest.
  const simple_model heavy{{3, 0, 1, 0, 3}};
  CHECK(counts_of(balanced_split(model, 4, heavy, mix, recompute_mode::none)) == std::vector<std::int64_t>{1, 3, 3, 1});
}

TEST_CASE("balanced_split: real models, and as many layers as any model may have") {
  const model_spec llama = presets::llama_3_8b();
  const analytic_cost cost{llama, presets::h100()};
  const std::vector<weighted_shape> mix{{{4, 512, 0}, 30}, {{1, 8'192, 0}, 2}};
  const std::vector<stage_spec> split = balanced_split(llama, 8, cost, mix, recompute_mode::none);
  CHECK(counts_of(split).back() < counts_of(split).front());
  const model_spec deep = model_of(0, 10'000);
  const std::vector<weighted_shape> one{{{1, 8, 0}, std::int64_t{1} << 31}};
  const std::vector<stage_spec> stages =
      balanced_split(deep, 16, simple_model{{5, 0, 1, 0, 9}}, one, recompute_mode::none);
  CHECK(stages.size() == 16);
  CHECK(counts_of(stages).front() == 621);
  CHECK(counts_of(stages).back() == 617);
}

TEST_CASE("balanced_split: bad questions are refused in words") {
  const model_spec model = model_of(0, 4);
  const simple_model cost{{1, 1, 1, 1, 1}};
  const auto ask = [&](std::int64_t stages, std::vector<weighted_shape> mix) {
    try {
      static_cast<void>(balanced_split(model, stages, cost, mix, recompute_mode::none));
    } catch (const error& e) {
      return std::string{e.what()};
    }
    return std::string{"none"};
  };
  CHECK(ask(4, {{{1, 8, 0}, 1}}) == "none");
  CHECK(ask(5, {{{1, 8, 0}, 1}}).find("it cannot be cut into 5 pipeline stages") != std::string::npos);
  CHECK(ask(0, {{{1, 8, 0}, 1}}).find("it cannot be cut into 0 pipeline stages") != std::string::npos);
  CHECK(ask(2, {}) == "a balanced split needs a mix of at least one shape");
  CHECK(ask(2, {{{1, 8, 0}, 1}, {{1, 8, 0}, 0}}) == "mix: weight of shape 1 must lie in 1..2147483648, it is 0");
  CHECK(ask(2, {{{1, 2'000'000, 0}, 1}}) ==
        "the mix has a shape of 1 x 2000000 tokens that cannot be run: more than a million tokens");
}
