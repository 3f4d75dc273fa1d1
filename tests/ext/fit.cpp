#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/ext/fit.hpp>

using namespace dynapipe;

namespace {

constexpr auto none = recompute_mode::none;

/// Coefficients as plain numbers, nanoseconds or bytes each.
struct numbers {
  double floor = 0;
  double constant = 0;
  double queries = 0;
  double keys = 0;
  double self_pairs = 0;
  double cross_pairs = 0;
  double self_cubes = 0;
};

double value_of(const numbers& c, layer_kind kind, const shape& s) {
  const bool crosses = kind == layer_kind::cross_decoder;
  const auto rows = static_cast<double>(s.rows);
  const auto query = static_cast<double>(crosses ? s.target : s.input);
  const double key = crosses ? static_cast<double>(s.input) : 0;
  const double line = c.constant + rows * (c.queries * query + c.keys * key + c.self_pairs * query * query +
                                           c.cross_pairs * query * key + c.self_cubes * query * query * query);
  return std::max(c.floor, line);
}

struct layer_numbers {
  numbers forward;
  numbers backward;
  numbers stored;
};

using disturbance = std::function<double()>;

profile profile_of(
    layer_kind kind, const std::vector<shape>& shapes, const layer_numbers& c,
    const disturbance& factor = [] { return 1.0; }) {
  profile p{.device = "gpu"};
  for (const shape& s : shapes) {
    profile_point point{.kind = kind, .recompute = none, .padded = s};
    point.forward = nanoseconds{std::llround(value_of(c.forward, kind, s) * factor())};
    point.backward = nanoseconds{std::llround(value_of(c.backward, kind, s) * factor())};
    point.stored = bytes{std::llround(value_of(c.stored, kind, s) * factor())};
    p.points.push_back(point);
  }
  return p;
}

std::vector<shape> decoder_shapes() {
  std::vector<shape> shapes;
  for (const std::int64_t rows : {1, 2, 4, 8, 16, 32})
    for (const std::int64_t length : {128, 256, 512, 1'024, 2'048, 4'096})
      if (rows * length <= 65'536) shapes.push_back({rows, length, 0});
  return shapes;
}

std::vector<shape> cross_shapes() {
  std::vector<shape> shapes;
  for (const std::int64_t rows : {1, 3, 8})
    for (const std::int64_t input : {128, 512, 1'024, 3'072})
      for (const std::int64_t target : {64, 192, 512})
        shapes.push_back({rows, input, target});
  return shapes;
}

/// Multiples of 2^-10, so that values at lengths that are multiples of 64 are integers.
layer_numbers decoder_numbers() {
  return {{.constant = 40'000, .queries = 120, .self_pairs = 0.015625},
          {.constant = 90'000, .queries = 250, .self_pairs = 0.0458984375},
          {.queries = 139'264}};
}

double fraction(std::int64_t coefficient) {
  return static_cast<double>(coefficient) / static_cast<double>(std::int64_t{1} << curve_shift);
}

/// A coefficient is held to half of its unit.
void check_close(std::int64_t coefficient, double expected, double tolerance) {
  CAPTURE(expected);
  CHECK(std::abs(fraction(coefficient) - expected) <= tolerance * expected + fraction(1));
}

/// The curve of `amount`, which must be known.
const cost_curve& curve(const fitted_costs& costs, layer_kind kind, cost_amount amount) {
  REQUIRE(costs.of(kind, none).of(amount).known);
  return costs.of(kind, none).of(amount).curve;
}

/// Mean relative distance of the fit from the truth over shapes.
double distance(const fitted_costs& costs, layer_kind kind, cost_amount amount, const numbers& c,
                const std::vector<shape>& shapes) {
  const fitted_cost cost{costs};
  double sum = 0;
  for (const shape& s : shapes)
    sum += std::abs(static_cast<double>(cost.value(amount, kind, s, none)) / value_of(c, kind, s) - 1);
  return sum / static_cast<double>(shapes.size());
}

bool never_negative(const fitted_costs& costs) {
  for (const auto& modes : costs.layers)
    for (const fitted_layer& layer : modes)
      for (const fitted_curve& f : layer.amounts) {
        const cost_curve& c = f.curve;
        if (std::min(
                {c.floor, c.constant, c.queries, c.keys, c.self_pairs, c.cross_pairs, c.self_cubes, c.cross_cubes}) < 0)
          return false;
      }
  return true;
}

}  // namespace

TEST_CASE("fit: recovers the coefficients of exact data, of every kind") {
  for (const layer_kind kind : {layer_kind::decoder, layer_kind::encoder, layer_kind::head, layer_kind::embedding}) {
    CAPTURE(to_string(kind));
    layer_numbers c = decoder_numbers();
    if (kind == layer_kind::head || kind == layer_kind::embedding) c.forward.self_pairs = c.backward.self_pairs = 0;
    const fitted_costs costs = fit(profile_of(kind, decoder_shapes(), c));
    for (const auto& [amount, expected] :
         {std::pair{cost_amount::forward, c.forward}, std::pair{cost_amount::backward, c.backward},
          std::pair{cost_amount::stored, c.stored}}) {
      CAPTURE(to_string(amount));
      const cost_curve& got = curve(costs, kind, amount);
      CHECK(std::abs(static_cast<double>(got.constant) - expected.constant) <= 1e-6 * expected.constant + 1);
      check_close(got.queries, expected.queries, 1e-6);
      check_close(got.self_pairs, expected.self_pairs, 1e-6);
      CHECK(got.self_cubes == 0);
      CHECK(got.keys == 0);
      const fit_error& error = costs.of(kind, none).of(amount).error;
      CHECK(error.points == 35);
      CHECK(error.mean < 1e-6);
      CHECK(error.p95 < 1e-6);
      CHECK(error.out_mean >= 0);
      CHECK(error.out_mean < 1e-6);
      CHECK(error.out_p95 < 1e-6);
    }
    CHECK(!costs.of(kind, none).of(cost_amount::weight).known);
    CHECK(!costs.of(kind, none).of(cost_amount::backward_peak).known);
    CHECK(!costs.of(kind, recompute_mode::full).of(cost_amount::forward).known);
    CHECK(costs.of(kind, none).seen == seen_range{{128, 65'536}, {128, 4'096}, {0, 0}});
  }

  const layer_numbers c{
      {.constant = 50'000, .queries = 200, .keys = 60, .self_pairs = 0.03125, .cross_pairs = 0.015625},
      {.constant = 90'000, .queries = 410, .keys = 130, .self_pairs = 0.046875, .cross_pairs = 0.0625},
      {.queries = 90'112, .keys = 16'384}};
  const fitted_costs costs = fit(profile_of(layer_kind::cross_decoder, cross_shapes(), c));
  for (const auto& [amount, expected] :
       {std::pair{cost_amount::forward, c.forward}, std::pair{cost_amount::backward, c.backward},
        std::pair{cost_amount::stored, c.stored}}) {
    CAPTURE(to_string(amount));
    const cost_curve& got = curve(costs, layer_kind::cross_decoder, amount);
    CHECK(std::abs(static_cast<double>(got.constant) - expected.constant) <= 1e-6 * expected.constant + 1);
    check_close(got.queries, expected.queries, 1e-6);
    check_close(got.keys, expected.keys, 1e-6);
    check_close(got.self_pairs, expected.self_pairs, 1e-6);
    check_close(got.cross_pairs, expected.cross_pairs, 1e-6);
  }
  CHECK(costs.of(layer_kind::cross_decoder, none).seen == seen_range{{64, 4'096}, {64, 512}, {128, 3'072}});
}

TEST_CASE("fit: noise and gross outliers move it little") {
  const layer_numbers c = decoder_numbers();
  std::vector<shape> shapes;
  for (const std::int64_t rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32})
    for (const std::int64_t length : {128, 192, 256, 384, 512, 768, 1'024, 1'536, 2'048, 3'072, 4'096})
      if (rows * length <= 65'536) shapes.push_back({rows, length, 0});
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U}) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    std::normal_distribution<double> noise{1, 0.02};
    const fitted_costs noisy = fit(profile_of(layer_kind::decoder, shapes, c, [&] { return noise(random); }));
    const cost_curve& got = curve(noisy, layer_kind::decoder, cost_amount::forward);
    check_close(got.queries, c.forward.queries, 0.05);
    check_close(got.self_pairs, c.forward.self_pairs, 0.1);
    CHECK(std::abs(static_cast<double>(got.constant) / c.forward.constant - 1) < 0.15);
    const fit_error& error = noisy.of(layer_kind::decoder, none).of(cost_amount::forward).error;
    CHECK(error.mean > 0.01);
    CHECK(error.mean < 0.022);
    CHECK(error.p95 < 0.05);
    CHECK(error.out_mean >= error.mean);
    CHECK(error.out_mean < 0.03);

    for (const double gross : {3.0, 1 / 3.0}) {
      CAPTURE(gross);
      const fitted_costs hit = fit(
          profile_of(layer_kind::decoder, shapes, c, [&] { return noise(random) * (random() % 10 == 0 ? gross : 1); }));
      for (const auto& [amount, expected] :
           {std::pair{cost_amount::forward, c.forward}, std::pair{cost_amount::backward, c.backward},
            std::pair{cost_amount::stored, c.stored}}) {
        CAPTURE(to_string(amount));
        CHECK(distance(hit, layer_kind::decoder, amount, expected, shapes) < (gross > 1 ? 0.03 : 0.05));
      }
      CHECK(never_negative(hit));
    }
  }
}

TEST_CASE("fit: coefficients are never negative, whatever the data") {
  for (const std::uint64_t seed : {21U, 22U, 23U}) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    for (int round = 0; round < 40; ++round) {
      const layer_kind kind = round % 2 == 0 ? layer_kind::decoder : layer_kind::cross_decoder;
      std::vector<shape> shapes;
      const std::size_t count = 2 + random() % 20;
      for (std::size_t k = 0; k < count; ++k)
        shapes.push_back({static_cast<std::int64_t>(1 + random() % 16),
                          static_cast<std::int64_t>(10 * k + 1 + random() % 9),
                          static_cast<std::int64_t>(1 + random() % 900)});
      profile p = profile_of(kind, shapes, decoder_numbers());
      for (profile_point& point : p.points) {
        point.forward = nanoseconds{static_cast<std::int64_t>(1 + random() % 1'000'000)};
        point.backward = nanoseconds{static_cast<std::int64_t>(1 + (random() >> (40 + random() % 20)))};
        point.stored = bytes{static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % 1'000'000)};
        point.backward_peak = bytes{static_cast<std::int64_t>(1 + random() % 1'000)};
      }
      const fitted_costs costs = fit(p);
      REQUIRE(never_negative(costs));
      const fit_error& error = costs.of(kind, none).of(cost_amount::forward).error;
      REQUIRE(std::isfinite(error.mean));
      REQUIRE(std::isfinite(error.out_mean));
      REQUIRE(error.p95 >= 0);
    }
  }
}

TEST_CASE("fit: finds the floor of times; memory has none") {
  layer_numbers c = decoder_numbers();
  c.forward.floor = 220'000;
  c.forward.constant = 0;
  c.stored = {.floor = 100'000'000, .queries = 100'000};
  std::vector<shape> shapes = decoder_shapes();
  for (const std::int64_t length : {64, 320, 640})
    shapes.push_back({1, length, 0});
  const fitted_costs costs = fit(profile_of(layer_kind::decoder, shapes, c));
  const cost_curve& got = curve(costs, layer_kind::decoder, cost_amount::forward);
  CHECK(got.floor == 220'000);
  check_close(got.queries, c.forward.queries, 1e-6);
  check_close(got.self_pairs, c.forward.self_pairs, 1e-6);
  CHECK(got.constant <= 1);
  CHECK(curve(costs, layer_kind::decoder, cost_amount::stored).floor == 0);

  std::mt19937_64 random{3};
  std::normal_distribution<double> noise{1, 0.02};
  const fitted_costs noisy = fit(profile_of(layer_kind::decoder, shapes, c, [&] { return noise(random); }));
  CHECK(distance(noisy, layer_kind::decoder, cost_amount::forward, c.forward, shapes) < 0.015);
}

TEST_CASE("fit: two points, and points that all lie on the floor") {
  const layer_numbers c = decoder_numbers();
  const std::vector<shape> two{{1, 128, 0}, {4, 512, 0}};
  const fitted_costs few = fit(profile_of(layer_kind::decoder, two, c));
  for (const auto& [amount, expected] :
       {std::pair{cost_amount::forward, c.forward}, std::pair{cost_amount::backward, c.backward},
        std::pair{cost_amount::stored, c.stored}})
    CHECK(distance(few, layer_kind::decoder, amount, expected, two) < 1e-3);
  CHECK(few.of(layer_kind::decoder, none).of(cost_amount::forward).error.points == 2);

  // The same length twice: none can be left out.
  const fitted_costs same = fit(profile_of(layer_kind::decoder, {{1, 128, 0}, {4, 128, 0}}, c));
  CHECK(same.of(layer_kind::decoder, none).of(cost_amount::forward).error.out_mean == -1);
  CHECK(same.of(layer_kind::decoder, none).of(cost_amount::forward).error.out_p95 == -1);

  const layer_numbers flat{{.constant = 150'000}, {.constant = 300'000}, {.constant = 4'096}};
  const fitted_costs level = fit(profile_of(layer_kind::decoder, decoder_shapes(), flat));
  for (const shape& s : {shape{1, 128, 0}, {32, 1'024, 0}, {1, 1, 0}}) {
    const fitted_cost cost{level};
    CHECK(std::abs(cost.forward(layer_kind::decoder, s, none).value() - 150'000) <= 2);
    CHECK(std::abs(cost.backward(layer_kind::decoder, s, none).value() - 300'000) <= 2);
    CHECK(std::abs(cost.stored(layer_kind::decoder, s, none).value() - 4'096) <= 2);
  }
}

TEST_CASE("fit: third order only where memory keeps scores, for padded points") {
  layer_numbers c = decoder_numbers();
  c.forward.self_cubes = 1e-5;
  c.backward.self_cubes = 3e-5;
  layer_numbers scores = c;
  scores.stored.self_pairs = 160;
  const auto cubes = [](const profile& p, const fit_options& options) {
    const fitted_costs costs = fit(p, options);
    return curve(costs, layer_kind::decoder, cost_amount::forward).self_cubes;
  };
  const profile flat = profile_of(layer_kind::decoder, decoder_shapes(), c);
  profile kept = profile_of(layer_kind::decoder, decoder_shapes(), scores);
  CHECK(cubes(flat, {}) == 0);
  check_close(cubes(kept, {}), 1e-5, 1e-3);
  CHECK(cubes(kept, {.degree = 2}) == 0);
  profile_point varlen = kept.points[0];
  varlen.varlen = true;
  varlen.packed = with_sample(with_sample({}, 100), 300);
  kept.points.push_back(varlen);
  CHECK(cubes(kept, {}) == 0);
}

TEST_CASE("fit: varlen points and padded ones make the same curve") {
  const layer_numbers c = decoder_numbers();
  profile p{.device = "gpu"};
  std::mt19937_64 random{8};
  for (int k = 0; k < 40; ++k) {
    profile_point point{.kind = layer_kind::decoder, .varlen = true};
    for (std::size_t samples = 1 + random() % 6; samples > 0; --samples)
      point.packed = with_sample(point.packed, static_cast<std::int64_t>(64 * (1 + random() % 40)));
    const auto value = [&](const numbers& n) {
      return std::llround(n.constant + n.queries * static_cast<double>(point.packed.tokens) +
                          n.self_pairs * static_cast<double>(point.packed.squares));
    };
    point.forward = nanoseconds{value(c.forward)};
    point.backward = nanoseconds{value(c.backward)};
    p.points.push_back(point);
  }
  const fitted_costs costs = fit(p);
  const cost_curve& got = curve(costs, layer_kind::decoder, cost_amount::forward);
  check_close(got.queries, c.forward.queries, 1e-6);
  check_close(got.self_pairs, c.forward.self_pairs, 1e-6);
  CHECK(costs.of(layer_kind::decoder, none).of(cost_amount::forward).error.out_mean < 1e-6);
}

TEST_CASE("fit: points that ran out of memory are passed over, repeated ones count as one") {
  const layer_numbers c = decoder_numbers();
  profile p = profile_of(layer_kind::decoder, decoder_shapes(), c);
  const fitted_costs before = fit(p);
  p.points.push_back({.kind = layer_kind::decoder, .padded = {64, 8'192, 0}, .out_of_memory = true});
  CHECK(fit(p) == before);
  p.points.push_back(p.points[3]);
  p.points.push_back(p.points[3]);
  CHECK(fit(p) == before);
  profile bad = p;
  bad.points[2].forward = nanoseconds{0};
  CHECK_THROWS_AS((void)fit(bad), error);
  bad.points.clear();
  CHECK_THROWS_AS((void)fit(bad), error);
}

TEST_CASE("fit: errors of lengths left out are those of lines through the others") {
  // A head's memory is a line in tokens: without one length of three, the line runs through the other two points.
  const std::array<std::int64_t, 3> tokens{100, 200, 400};
  const std::array<double, 3> measured{1'100'000, 2'050'000, 4'300'000};
  profile p{.device = "gpu"};
  for (std::size_t k = 0; k < 3; ++k) {
    profile_point point{.kind = layer_kind::head, .padded = {1, tokens[k], 0}};
    point.forward = nanoseconds{1'000 * tokens[k]};
    point.backward = nanoseconds{2'000 * tokens[k]};
    point.stored = bytes{std::llround(measured[k])};
    p.points.push_back(point);
  }
  std::array<double, 3> off{};
  for (std::size_t k = 0; k < 3; ++k) {
    const std::size_t a = (k + 1) % 3;
    const std::size_t b = (k + 2) % 3;
    const double slope = (measured[b] - measured[a]) / static_cast<double>(tokens[b] - tokens[a]);
    const double constant = measured[a] - slope * static_cast<double>(tokens[a]);
    // Lines through the origin where the constant would be negative do not occur here.
    REQUIRE((constant >= 0 || k == 0));
    off[k] = std::abs((constant + slope * static_cast<double>(tokens[k])) / measured[k] - 1);
  }
  // Without the first length the constant would be negative: a line through the origin, least squares of relative
  // errors of two slopes, the larger of which is 5 % above: sum (x / s - 1)^2 is least at sum x^2 s^-2 = sum x s^-1.
  const double s1 = measured[1] / 200;
  const double s2 = measured[2] / 400;
  const double slope = (1 / s1 + 1 / s2) / (1 / (s1 * s1) + 1 / (s2 * s2));
  off[0] = std::abs(slope * 100 / measured[0] - 1);
  const fitted_costs costs = fit(p);
  const fit_error& error = costs.of(layer_kind::head, none).of(cost_amount::stored).error;
  CHECK(error.out_mean == doctest::Approx((off[0] + off[1] + off[2]) / 3).epsilon(1e-6));
  CHECK(error.out_p95 == doctest::Approx(*std::max_element(off.begin(), off.end())).epsilon(1e-6));
}

TEST_CASE("fit: links are latency and bandwidth") {
  profile p = profile_of(layer_kind::decoder, decoder_shapes(), decoder_numbers());
  for (std::int64_t size = 4'096; size <= (std::int64_t{1} << 28); size *= 4) {
    p.links.push_back({link_place::intra_node, bytes{size}, nanoseconds{12'000 + size / 256}});
    p.links.push_back({link_place::inter_node, bytes{size}, nanoseconds{30'000 + size / 16}});
  }
  // One message that was disturbed.
  p.links[9].time = p.links[9].time * 4;
  const fitted_costs costs = fit(p);
  const fitted_link& intra = costs.links[static_cast<std::size_t>(link_place::intra_node)];
  CHECK(intra.points == 9);
  CHECK(std::abs(intra.latency.value() - 12'000) <= 1);
  CHECK(intra.gbps == doctest::Approx(8 * 256).epsilon(1e-6));
  CHECK(intra.mean_error < 1e-4);
  const fitted_link& inter = costs.links[static_cast<std::size_t>(link_place::inter_node)];
  CHECK(inter.latency.value() == doctest::Approx(30'000).epsilon(0.05));
  CHECK(inter.gbps == doctest::Approx(8 * 16).epsilon(0.05));
  CHECK(inter.mean_error > 0.05);

  p.links.resize(1);
  CHECK(fit(p).links[static_cast<std::size_t>(link_place::intra_node)].points == 0);
}

TEST_CASE("fit: carries what the profile says of itself") {
  profile p = profile_of(layer_kind::decoder, decoder_shapes(), decoder_numbers());
  p.type = dtype::fp32;
  p.heads = p.kv_heads = 8;
  p.hidden = 512;
  p.ffn = 2'048;
  p.tensor_parallel = 4;
  p.parameters[2] = bytes{999};
  const fitted_costs costs = fit(p);
  CHECK(costs.device == "gpu");
  CHECK(costs.type == dtype::fp32);
  CHECK(costs.tensor_parallel == 4);
  CHECK(costs.parameters == p.parameters);
}
