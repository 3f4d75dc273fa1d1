#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include <dynapipe/cost/fitted.hpp>

using namespace dynapipe;

namespace {

constexpr layer_kind kinds[] = {layer_kind::embedding, layer_kind::encoder, layer_kind::decoder,
                                layer_kind::cross_decoder, layer_kind::head};
constexpr auto none = recompute_mode::none;

std::int64_t fixed(double c) { return static_cast<std::int64_t>(c * 0x1p32); }

/// Fitted costs with the given curves for (kind, none).
fitted_costs with_curves(layer_kind kind, std::initializer_list<std::pair<cost_amount, cost_curve>> curves) {
  fitted_costs costs{.device = "gpu"};
  for (const auto& [amount, curve] : curves)
    costs.of(kind, none).amounts[static_cast<std::size_t>(amount)] = {true, curve, {}};
  return costs;
}

/// Every amount has the same curve.
fitted_costs with_all(layer_kind kind, const cost_curve& curve) {
  fitted_costs costs{.device = "gpu"};
  for (fitted_curve& amount : costs.of(kind, none).amounts)
    amount = {true, curve, {}};
  return costs;
}

/// The curve's value in long hand: whole parts and fractions of the products are summed apart.
template <std::size_t N>
std::int64_t long_hand(const cost_curve& curve, wide_int rows,
                       const std::array<std::pair<std::int64_t, wide_int>, N>& terms) {
  wide_int whole = 0;
  wide_int fraction = 0;
  for (const auto& [coefficient, count] : terms) {
    if (coefficient == 0) continue;
    if (count >= int64_limit) return int64_limit;
    const wide_int product = coefficient * count;
    whole += product / (wide_int{1} << 32);
    fraction += product % (wide_int{1} << 32);
  }
  while (fraction > 0) {
    ++whole;
    fraction -= wide_int{1} << 32;
  }
  if (whole > int64_limit) whole = int64_limit;
  const wide_int line = curve.constant + rows * whole;
  if (line < curve.floor) return curve.floor;
  return line > int64_limit ? int64_limit : static_cast<std::int64_t>(line);
}

std::int64_t long_hand(const cost_curve& c, layer_kind kind, const shape& s) {
  const wide_int rows = s.rows;
  const wide_int input = s.input;
  const wide_int target = s.target;
  using term = std::pair<std::int64_t, wide_int>;
  if (kind == layer_kind::cross_decoder)
    return long_hand(c, rows,
                     std::array{term{c.queries, target}, term{c.keys, input}, term{c.self_pairs, target * target},
                                term{c.cross_pairs, target * input}, term{c.self_cubes, target * target * target},
                                term{c.cross_cubes, target * input * (target + input)}});
  if (kind == layer_kind::head && s.target > 0) return long_hand(c, rows, std::array{term{c.queries, target}});
  if (kind == layer_kind::head || kind == layer_kind::embedding)
    return long_hand(c, rows, std::array{term{c.queries, input}});
  return long_hand(
      c, rows,
      std::array{term{c.queries, input}, term{c.self_pairs, input * input}, term{c.self_cubes, input * input * input}});
}

std::int64_t up_to_bits(std::mt19937_64& random, int bits) {
  return static_cast<std::int64_t>(random() >> 1 >> (63 - std::uniform_int_distribution<int>{0, bits}(random)));
}

cost_curve random_curve(std::mt19937_64& random, int bits, bool cubic) {
  const auto some = [&] { return random() % 4 == 0 ? 0 : up_to_bits(random, bits); };
  return {.floor = some(),
          .constant = some(),
          .queries = some(),
          .keys = some(),
          .self_pairs = some(),
          .cross_pairs = some(),
          .self_cubes = cubic ? some() : 0,
          .cross_cubes = cubic ? some() : 0};
}

template <class Shape>
std::array<std::int64_t, 8> every_cost(const fitted_cost& cost, layer_kind kind, const Shape& s) {
  return {cost.forward(kind, s, none).value(),        cost.backward(kind, s, none).value(),
          cost.backward_input(kind, s, none).value(), cost.backward_weight(kind, s, none).value(),
          cost.stored(kind, s, none).value(),         cost.weight_stored(kind, s, none).value(),
          cost.forward_peak(kind, s, none).value(),   cost.backward_peak(kind, s, none).value()};
}

}  // namespace

TEST_CASE("fitted: a curve by hand") {
  const cost_curve curve{
      .floor = 5'000, .constant = 100, .queries = fixed(3), .self_pairs = fixed(0.25), .self_cubes = 1};
  const fitted_cost cost{with_curves(layer_kind::decoder, {{cost_amount::forward, curve}})};
  const auto forward = [&](const shape& s) { return cost.forward(layer_kind::decoder, s, none).value(); };
  CHECK(forward({1, 8, 0}) == 5'000);
  // 100 + 2 rows of 3 * 100 + 100^2 / 4, and a little more: each rounded up
  CHECK(forward({2, 100, 0}) == 5'702);
  CHECK(forward({2, 100, 77}) == 5'702);
  // 100 + 3 * 4096 + 4096^2 / 4, and 2^36 / 2^32
  CHECK(forward({1, 4'096, 0}) == 4'206'708);
  CHECK(cost.source() == "fit of gpu");
}

TEST_CASE("fitted: values are those of long hand, exact, for all shapes") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    std::mt19937_64 random{seed};
    CAPTURE(seed);
    std::int64_t held = 0;
    for (int round = 0; round < 4'000; ++round) {
      const layer_kind kind = kinds[random() % 5];
      const cost_curve curve = random_curve(random, round % 2 == 0 ? 45 : 62, round % 3 == 0);
      const fitted_cost cost{with_all(kind, curve)};
      for (int k = 0; k < 4; ++k) {
        const int bits = k % 2 == 0 ? 14 : 31;
        const shape s{1 + up_to_bits(random, bits), 1 + up_to_bits(random, bits),
                      (kind == layer_kind::cross_decoder ? 1 : 0) + up_to_bits(random, bits)};
        const std::int64_t expected = long_hand(curve, kind, s);
        held += expected == int64_limit ? 1 : 0;
        CAPTURE(s.rows);
        CAPTURE(s.input);
        CAPTURE(s.target);
        REQUIRE(cost.forward(kind, s, none).value() == expected);
        REQUIRE(cost.stored(kind, s, none).value() == expected);
        REQUIRE(cost.backward_peak(kind, s, none).value() == expected);
      }
    }
    CHECK(held > 500);
    CHECK(held < 12'000);
  }
}

TEST_CASE("fitted: one sample without padding costs what one padded row costs") {
  std::mt19937_64 random{4};
  for (int round = 0; round < 2'000; ++round) {
    const layer_kind kind = kinds[random() % 5];
    fitted_costs costs{.device = "gpu"};
    for (fitted_curve& amount : costs.of(kind, none).amounts)
      amount = {true, random_curve(random, 44, false), {}};
    const fitted_cost cost{costs};
    const shape s{1, 1 + up_to_bits(random, 20), 1 + up_to_bits(random, 20)};
    const varlen_shape packed = with_sample({}, s.input, s.target);
    REQUIRE(every_cost(cost, kind, packed) == every_cost(cost, kind, s));
    REQUIRE(cost.extrapolates(kind, packed, none) == cost.extrapolates(kind, s, none));
  }
}

TEST_CASE("fitted: costs do not fall when rows or a length grow, and halves of a backward sum to it") {
  for (const std::uint64_t seed : {11U, 12U, 13U}) {
    std::mt19937_64 random{seed};
    CAPTURE(seed);
    for (int round = 0; round < 4'000; ++round) {
      const layer_kind kind = kinds[random() % 5];
      CAPTURE(to_string(kind));
      fitted_costs costs{.device = "gpu"};
      const int bits = round % 4 == 0 ? 60 : 44;
      for (fitted_curve& amount : costs.of(kind, none).amounts)
        amount = {true, random_curve(random, bits, round % 3 == 0), {}};
      auto& known = costs.of(kind, none).amounts;
      known[static_cast<std::size_t>(cost_amount::weight)].known = round % 5 != 0;
      known[static_cast<std::size_t>(cost_amount::weight_stored)].known = round % 7 != 0;
      const fitted_cost cost{costs};
      shape s{1 + up_to_bits(random, 12), 1 + up_to_bits(random, 14), 1 + up_to_bits(random, 14)};
      std::array<std::int64_t, 8> before = every_cost(cost, kind, s);
      for (int step = 0; step < 8; ++step) {
        std::int64_t& grown = random() % 3 == 0 ? s.rows : random() % 2 == 0 ? s.input : s.target;
        grown += random() % 2 == 0 ? 1 : up_to_bits(random, 16);
        const std::array<std::int64_t, 8> after = every_cost(cost, kind, s);
        for (std::size_t a = 0; a < after.size(); ++a) {
          CAPTURE(a);
          REQUIRE(after[a] >= before[a]);
        }
        REQUIRE(saturating_add(after[2], after[3]) >= after[1]);
        REQUIRE(after[2] <= after[1]);
        REQUIRE(after[3] <= after[1]);
        REQUIRE(after[5] <= after[4]);
        REQUIRE(after[6] >= after[4]);
        before = after;
      }
    }
  }
}

TEST_CASE("fitted: terms of third order price no sums of squares") {
  const cost_curve square{.constant = 1'000'000, .queries = fixed(100), .self_pairs = fixed(0.5)};
  cost_curve cube = square;
  cube.self_cubes = 1'000;
  fitted_costs costs = with_all(layer_kind::decoder, square);
  costs.of(layer_kind::decoder, none).amounts[static_cast<std::size_t>(cost_amount::backward)].curve = cube;
  const fitted_cost cost{costs};
  const varlen_shape packed = with_sample(with_sample({}, 100), 900);
  const shape padded{2, 900, 0};
  CHECK(cost.backward(layer_kind::decoder, packed, none) == nanoseconds::max());
  CHECK(cost.backward_input(layer_kind::decoder, packed, none) == nanoseconds::max());
  CHECK(cost.backward(layer_kind::decoder, padded, none) < nanoseconds::max());
  const std::string text = cost.refusal(layer_kind::decoder, packed, none);
  CHECK(text.find("backward_ns of decoder with recompute none") != std::string::npos);
  CHECK(text.find("third order") != std::string::npos);
  CHECK(text.find("degree 2") != std::string::npos);
  CHECK(cost.refusal(layer_kind::decoder, padded, none).empty());
}

TEST_CASE("fitted: what was not measured is refused, with its name") {
  const cost_curve line{.constant = 1'000, .queries = fixed(10)};
  const fitted_cost times_only{
      with_curves(layer_kind::decoder, {{cost_amount::forward, line}, {cost_amount::backward, line}})};
  const shape s{2, 64, 0};
  CHECK(times_only.forward(layer_kind::decoder, s, none).value() == 2'280);
  CHECK(times_only.stored(layer_kind::decoder, s, none) == bytes::max());
  CHECK(times_only.weight_stored(layer_kind::decoder, s, none) == bytes::max());
  CHECK(times_only.forward_peak(layer_kind::decoder, s, none) == bytes::max());
  CHECK(times_only.backward_peak(layer_kind::decoder, s, none) == bytes::max());
  CHECK(times_only.refusal(layer_kind::decoder, s, none).find("no stored_bytes of decoder with recompute none") !=
        std::string::npos);

  for (const recompute_mode mode : {recompute_mode::selective, recompute_mode::full}) {
    CHECK(times_only.forward(layer_kind::decoder, s, mode) == nanoseconds::max());
    CHECK(times_only.backward_input(layer_kind::decoder, s, mode) == nanoseconds::max());
    CHECK(times_only.backward_weight(layer_kind::decoder, s, mode) == nanoseconds::max());
    const std::string text = times_only.refusal(layer_kind::decoder, s, mode);
    CHECK(text.find("of gpu have no decoder with recompute " + std::string{to_string(mode)}) != std::string::npos);
    CHECK(text.find("--recompute") != std::string::npos);
  }
  CHECK(times_only.refusal(layer_kind::encoder, s, none).find("no encoder") != std::string::npos);
  CHECK(times_only.refusal(layer_kind::encoder, with_sample({}, 64), none).find("no encoder") != std::string::npos);
}

TEST_CASE("fitted: an embedding that was not measured takes no time") {
  const fitted_cost cost{with_curves(layer_kind::embedding, {{cost_amount::stored, {.queries = fixed(2)}}})};
  const shape s{2, 64, 0};
  CHECK(cost.forward(layer_kind::embedding, s, none) == nanoseconds{0});
  CHECK(cost.backward(layer_kind::embedding, s, none) == nanoseconds{0});
  CHECK(cost.backward_input(layer_kind::embedding, s, none) == nanoseconds{0});
  CHECK(cost.stored(layer_kind::embedding, s, none) == bytes{256});
  CHECK(!cost.extrapolates(layer_kind::embedding, s, none));
  CHECK(cost.refusal(layer_kind::embedding, s, none).find("forward_peak_bytes of embedding") != std::string::npos);
}

TEST_CASE("fitted: a roofline answers for memory and states that were not measured, never for times") {
  const cost_curve line{.constant = 1'000, .queries = fixed(10)};
  const analytic_cost rest{presets::gpt_6_7b(), presets::a100_80g()};
  fitted_costs costs = with_curves(
      layer_kind::decoder,
      {{cost_amount::forward, line}, {cost_amount::backward, line}, {cost_amount::stored, {.queries = fixed(7)}}});
  costs.parameters.fill(bytes{1'000});
  const fitted_cost cost{costs, {.rest = rest}};
  const shape s{2, 64, 0};
  CHECK(cost.stored(layer_kind::decoder, s, none) == bytes{896});
  CHECK(cost.weight_stored(layer_kind::decoder, s, none) == bytes{448});
  CHECK(cost.backward_peak(layer_kind::decoder, s, none) == rest.backward_peak(layer_kind::decoder, s, none));
  CHECK(cost.forward_peak(layer_kind::decoder, s, none) == rest.forward_peak(layer_kind::decoder, s, none));
  CHECK(cost.stored(layer_kind::head, s, none) == rest.stored(layer_kind::head, s, none));
  CHECK(cost.state(layer_kind::decoder) == rest.state(layer_kind::decoder));
  CHECK(cost.refusal(layer_kind::decoder, s, none).empty());
  CHECK(cost.forward(layer_kind::head, s, none) == nanoseconds::max());
  CHECK(cost.refusal(layer_kind::head, s, none).find("no head") != std::string::npos);
}

TEST_CASE("fitted: states come from parameters, a tied head's from the embedding") {
  fitted_costs costs{.device = "gpu", .type = dtype::bf16};
  costs.parameters = {bytes{2'000}, bytes{0}, bytes{101}, bytes{0}, bytes{0}};
  const std::int64_t each = state_bytes_per_parameter(dtype::bf16);
  const fitted_cost tied{costs};
  CHECK(tied.state(layer_kind::embedding) == bytes{1'000 * each});
  CHECK(tied.state(layer_kind::head) == bytes{1'000 * each});
  CHECK(tied.state(layer_kind::decoder) == bytes{51 * each});
  CHECK(tied.state(layer_kind::encoder) == bytes{0});
  costs.parameters[static_cast<std::size_t>(layer_kind::head)] = bytes{40};
  CHECK(fitted_cost{costs}.state(layer_kind::head) == bytes{20 * each});
}

TEST_CASE("fitted: extrapolates beyond the tokens and lengths that were seen, of queries and of keys") {
  const cost_curve line{.constant = 1'000, .queries = fixed(10)};
  const auto seen = [&](layer_kind kind, const seen_range& range) {
    fitted_costs costs = with_all(kind, line);
    costs.of(kind, none).seen = range;
    return fitted_cost{costs};
  };
  const fitted_cost decoder = seen(layer_kind::decoder, {{128, 4'096}, {64, 1'024}, {0, 0}});
  const auto outside = [&](const auto& s) { return decoder.extrapolates(layer_kind::decoder, s, none); };
  CHECK(!outside(shape{4, 1'024, 0}));
  CHECK(!outside(shape{1, 1, 0}));
  CHECK(!outside(shape{64, 64, 9'999}));
  CHECK(outside(shape{1, 1'025, 0}));
  CHECK(outside(shape{65, 64, 0}));
  CHECK(!outside(varlen_shape{.tokens = 4'096, .samples = 4}));
  CHECK(outside(varlen_shape{.tokens = 4'096, .samples = 3}));
  CHECK(outside(varlen_shape{.tokens = 4'097, .samples = 400}));
  CHECK(!decoder.extrapolates(layer_kind::encoder, shape{1, 9'999, 0}, none));

  const fitted_cost crossing = seen(layer_kind::cross_decoder, {{128, 4'096}, {64, 1'024}, {64, 2'048}});
  const auto out = [&](const shape& s) { return crossing.extrapolates(layer_kind::cross_decoder, s, none); };
  CHECK(!out({4, 2'048, 1'024}));
  CHECK(out({4, 2'049, 1'024}));
  CHECK(out({3, 2'048, 1'025}));
  CHECK(out({5, 2'048, 1'024}));

  const fitted_cost head = seen(layer_kind::head, {{128, 4'096}, {64, 1'024}, {0, 0}});
  CHECK(!head.extrapolates(layer_kind::head, shape{2, 9'999, 512}, none));
  CHECK(head.extrapolates(layer_kind::head, shape{2, 9'999, 0}, none));
}

TEST_CASE("fitted: measured links take the place of the cluster's") {
  const cluster_spec cluster = presets::a100_80g();
  fitted_costs costs{.device = "gpu"};
  CHECK(with_links(cluster, costs).intra_node.gbps == cluster.intra_node.gbps);
  costs.links[static_cast<std::size_t>(link_place::inter_node)] = {3, nanoseconds{777}, 123.5, 0};
  const cluster_spec changed = with_links(cluster, costs);
  CHECK(changed.inter_node.latency == nanoseconds{777});
  CHECK(changed.inter_node.gbps == 123.5);
  CHECK(changed.intra_node.gbps == cluster.intra_node.gbps);
  CHECK(changed.intra_node.latency == cluster.intra_node.latency);
}
