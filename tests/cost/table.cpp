#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/table.hpp>

#include "table_truth.hpp"

using namespace dynapipe;
using namespace table_truth;

TEST_CASE("table: measured points come back as they were measured") {
  for (const layer_kind kind : {layer_kind::decoder, layer_kind::encoder}) {
    const std::vector<shape> shapes = grid(powers_of_rows, powers_of_lengths, 32'768);
    for (const bool wobbles : {false, true})
      for (const outside_policy outside : {outside_policy::error, outside_policy::fitted}) {
        CAPTURE(wobbles);
        const profile p = profile_of(kind, shapes, wobbles ? wobble_of(kind) : smooth_of(kind));
        const table_cost cost{p, fit_of(kind), {.outside = outside}};
        CHECK(cost.spikes().empty());
        CHECK(cost.holes().empty());
        for (const profile_point& point : p.points) {
          CAPTURE(point.padded.rows);
          CAPTURE(point.padded.input);
          CHECK(cost.forward(kind, point.padded, none) == point.forward);
          CHECK(cost.backward(kind, point.padded, none) == point.backward);
          CHECK(cost.backward_weight(kind, point.padded, none) == point.weight);
          // Bytes are held to 30 binary digits.
          for (const cost_amount amount : {cost_amount::stored, cost_amount::weight_stored, cost_amount::forward_peak,
                                           cost_amount::backward_peak}) {
            const std::int64_t measured = detail::amounts_of(point)[static_cast<std::size_t>(amount)];
            CHECK(std::abs(cost.value(amount, kind, point.padded, none) - measured) <= 1 + (measured >> 30));
          }
          CHECK(!cost.extrapolates(kind, point.padded, none));
          CHECK(cost.refusal(kind, point.padded, none).empty());
        }
      }
  }
}

TEST_CASE("table: shapes between points are close to a smooth truth") {
  constexpr auto kind = layer_kind::decoder;
  // Every second length and row count is left out.
  const profile p = profile_of(kind, grid({1, 4, 16, 64}, {64, 256, 1'024, 4'096}, 1'000'000), wobble_of(kind));
  const table_cost cost{p, fit_of(kind)};
  std::array<double, 7> sum{};
  std::array<double, 7> worst{};
  std::array<double, 7> fit_sum{};
  int count = 0;
  for (const shape& s : grid({1, 2, 3, 8, 11, 32, 50}, {100, 128, 192, 512, 700, 2'048, 3'000}, 1'000'000)) {
    ++count;
    for (const auto& [amount, name] : cost_amount_names) {
      const auto a = static_cast<std::size_t>(amount);
      const double off = relative(cost.value(amount, kind, s, none), wobbly(kind, amount, s));
      sum[a] += off;
      fit_sum[a] += relative(cost.fit().value(amount, kind, s, none), wobbly(kind, amount, s));
      worst[a] = std::max(worst[a], off);
    }
  }
  for (std::size_t a = 0; a < 7; ++a) {
    CAPTURE(a);
    CHECK(sum[a] / count < 0.03);
    CHECK(sum[a] < 0.5 * fit_sum[a]);
    CHECK(worst[a] < 0.12);
  }
}

TEST_CASE("table: three axes, against an independent interpolation") {
  constexpr auto kind = layer_kind::cross_decoder;
  const std::vector<std::int64_t> rows{1, 3, 8};
  const std::vector<std::int64_t> targets{20, 64, 100};
  const std::vector<std::int64_t> inputs{64, 200, 512, 640};
  std::vector<shape> shapes;
  for (const std::int64_t r : rows)
    for (const std::int64_t input : inputs)
      for (const std::int64_t target : targets)
        shapes.push_back({r, input, target});
  const profile p = profile_of(kind, shapes, wobble_of(kind));
  const table_cost cost{p, fit_of(kind), {.monotone = false, .spike_percent = 0}};

  // Points of an axis, with each gap cut into parts of a quarter of its lower end.
  const auto finer = [](const std::vector<std::int64_t>& axis) {
    std::vector<std::int64_t> all;
    for (std::size_t i = 0; i + 1 < axis.size(); ++i) {
      const std::int64_t gap = axis[i + 1] - axis[i];
      const std::int64_t parts = (4 * gap + axis[i] - 1) / axis[i];
      for (std::int64_t k = 0; k < parts; ++k)
        all.push_back(axis[i] + gap * k / parts);
    }
    all.push_back(axis.back());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  };
  const auto around = [](const std::vector<std::int64_t>& axis, double x) {
    std::size_t i = 0;
    while (i + 2 < axis.size() && static_cast<double>(axis[i + 1]) <= x)
      ++i;
    return std::pair{static_cast<double>(axis[i]), static_cast<double>(axis[i + 1])};
  };
  const auto trilinear = [&](const std::array<std::vector<std::int64_t>, 3>& axes, const std::array<double, 3>& x,
                             bool by_log, const auto& node) {
    double sum = 0;
    for (int corner = 0; corner < 8; ++corner) {
      double weight = 1;
      std::array<double, 3> at{};
      for (std::size_t a = 0; a < 3; ++a) {
        const auto [low, high] = around(axes[a], x[a]);
        const double part = by_log ? std::log(x[a] / low) / std::log(high / low) : (x[a] - low) / (high - low);
        const bool upper = ((corner >> a) & 1) != 0;
        weight *= upper ? part : 1 - part;
        at[a] = upper ? high : low;
      }
      if (weight > 0) sum += weight * node(at);
    }
    return sum;
  };
  const auto shape_of = [](const std::array<double, 3>& x) {
    return shape{std::llround(x[0]), std::llround(x[2]), std::llround(x[1])};
  };
  const std::array measured_axes{rows, targets, inputs};
  const std::array fine_axes{finer(rows), finer(targets), finer(inputs)};
  std::mt19937_64 random{5};
  for (int round = 0; round < 1'500; ++round) {
    const shape s{static_cast<std::int64_t>(1 + random() % 8), static_cast<std::int64_t>(64 + random() % 577),
                  static_cast<std::int64_t>(20 + random() % 81)};
    CAPTURE(s.rows);
    CAPTURE(s.input);
    CAPTURE(s.target);
    for (const auto& [amount, name] : cost_amount_names) {
      CAPTURE(name);
      const auto ratio = [&](const std::array<double, 3>& at) {
        return wobbly(kind, amount, shape_of(at)) / smooth(kind, amount, shape_of(at));
      };
      const auto fine = [&](const std::array<double, 3>& at) {
        return smooth(kind, amount, shape_of(at)) * trilinear(measured_axes, at, true, ratio);
      };
      const double expected = trilinear(
          fine_axes, {static_cast<double>(s.rows), static_cast<double>(s.target), static_cast<double>(s.input)}, false,
          fine);
      REQUIRE(relative(cost.value(amount, kind, s, none), expected) < 1e-4);
    }
  }
}

TEST_CASE("table: holes inside are filled from their neighbours and listed") {
  constexpr auto kind = layer_kind::decoder;
  std::vector<shape> shapes = grid(powers_of_rows, powers_of_lengths, 32'768);
  const std::vector<shape> holes{{4, 512, 0}, {2, 4'096, 0}, {1, 64, 0}};
  for (const shape& hole : holes)
    std::erase(shapes, hole);
  const profile p = profile_of(kind, shapes, wobble_of(kind));
  const table_cost cost{p, fit_of(kind)};
  REQUIRE(cost.holes().size() == holes.size());
  for (const shape& hole : holes) {
    CAPTURE(hole.rows);
    CHECK(std::count(cost.holes().begin(), cost.holes().end(), table_remark{kind, none, hole}) == 1);
    CHECK(!cost.extrapolates(kind, hole, none));
    for (const auto& [amount, name] : cost_amount_names) {
      CAPTURE(name);
      const bool between = hole == holes[0];
      CHECK(relative(cost.value(amount, kind, hole, none), wobbly(kind, amount, hole)) < (between ? 0.02 : 0.15));
    }
  }
}

TEST_CASE("table: a spike is brought back to its neighbours and listed, unless told not to") {
  constexpr auto kind = layer_kind::decoder;
  const shape at{4, 512, 0};
  for (const double by : {1.5, 1 / 1.5}) {
    const auto taken = [&](cost_amount amount, const shape& s) {
      return wobbly(kind, amount, s) * (s == at && amount == cost_amount::forward ? by : 1);
    };
    const profile p = profile_of(kind, grid(powers_of_rows, powers_of_lengths, 32'768), taken);
    const table_cost cost{p, fit_of(kind)};
    REQUIRE(cost.spikes().size() == 1);
    CHECK(cost.spikes()[0] == table_remark{kind, none, at});
    CHECK(relative(cost.forward(kind, at, none).value(), wobbly(kind, cost_amount::forward, at)) < 0.1);
    CHECK(relative(cost.backward(kind, at, none).value(), wobbly(kind, cost_amount::backward, at)) < 1e-6);
    const table_cost raw{p, fit_of(kind), {.monotone = false, .spike_percent = 0}};
    CHECK(raw.spikes().empty());
    CHECK(relative(raw.forward(kind, at, none).value(), by * wobbly(kind, cost_amount::forward, at)) < 1e-5);
    const table_cost wide{p, fit_of(kind), {.monotone = false, .spike_percent = 60}};
    CHECK(wide.spikes().empty());
  }
}

TEST_CASE("table: the fit outside of what was measured changes nothing inside") {
  constexpr auto kind = layer_kind::decoder;
  const auto taken = [&](cost_amount amount, const shape& s) { return 1.5 * smooth(kind, amount, s); };
  const profile p = profile_of(kind, grid(powers_of_rows, {64, 128, 192, 256, 320}, 4'096), taken);
  for (const outside_policy outside : {outside_policy::error, outside_policy::fitted}) {
    const table_cost cost{p, fit_of(kind), {.outside = outside}};
    for (const profile_point& point : p.points) {
      CAPTURE(point.padded.rows);
      CAPTURE(point.padded.input);
      // Where the floor makes times equal, rounded ratios between points may fall by 1 ns.
      CHECK(std::abs(cost.forward(kind, point.padded, none).value() - point.forward.value()) <= 1);
      CHECK(std::abs(cost.backward(kind, point.padded, none).value() - point.backward.value()) <= 1);
    }
  }
}

TEST_CASE("table: at and beyond a point that ran out of memory nothing runs") {
  constexpr auto kind = layer_kind::decoder;
  profile p = profile_of(kind, grid(powers_of_rows, powers_of_lengths, 16'384), wobble_of(kind));
  p.points.push_back({.kind = kind, .padded = {8, 4'096, 0}, .out_of_memory = true});
  p.points.push_back({.kind = kind, .padded = {40, 600, 0}, .out_of_memory = true});
  for (const outside_policy outside : {outside_policy::error, outside_policy::fitted}) {
    const table_cost cost{p, fit_of(kind), {.outside = outside}};
    for (const shape& s : {shape{8, 4'096, 0},
                           {9, 4'096, 0},
                           {8, 5'000, 0},
                           {40, 600, 0},
                           {64, 600, 0},
                           {41, 700, 0},
                           {1'000, 100'000, 0}}) {
      CAPTURE(s.rows);
      CAPTURE(s.input);
      CHECK(all_refused(cost, kind, s));
      CHECK(!cost.extrapolates(kind, s, none));
      const std::string text = cost.refusal(kind, s, none);
      CHECK(text.find("ran out of memory") != std::string::npos);
      CHECK(text.find(std::to_string(s.rows) + " x " + std::to_string(s.input)) != std::string::npos);
      CHECK(text.find("--tp") != std::string::npos);
    }
    CHECK(!all_refused(cost, kind, {4, 4'096, 0}));
    CHECK(all_refused(cost, kind, {39, 599, 0}) == (outside == outside_policy::error));
  }
}

TEST_CASE("table: outside is refused, or priced by the fit and told") {
  constexpr auto kind = layer_kind::decoder;
  const auto slow = [&](cost_amount amount, const shape& s) { return 1.3 * smooth(kind, amount, s); };
  const profile p = profile_of(kind, grid(powers_of_rows, powers_of_lengths, 16'384), slow);
  const table_cost refusing{p, fit_of(kind)};
  const table_cost fitted{p, fit_of(kind), {.outside = outside_policy::fitted}};
  for (const shape& s :
       {shape{1, 4'097, 0}, {33, 64, 0}, {8, 4'096, 0}, {32, 513, 0}, {5, 4'000, 0}, {64, 64, 0}, {1, 100'000, 0}}) {
    CAPTURE(s.rows);
    CAPTURE(s.input);
    CHECK(all_refused(refusing, kind, s));
    CHECK(refusing.extrapolates(kind, s, none));
    CHECK(refusing.refusal(kind, s, none).find("--outside fitted") != std::string::npos);
    CHECK(fitted.extrapolates(kind, s, none));
    CHECK(fitted.refusal(kind, s, none).empty());
    for (const auto& [amount, name] : cost_amount_names) {
      CAPTURE(name);
      const std::int64_t got = fitted.value(amount, kind, s, none);
      CHECK(got < int64_limit);
      // The fit, rounded on the finer grid; what lies nearest is never undercut.
      CHECK(static_cast<double>(got) >= 0.999 * smooth(kind, amount, s));
      shape nearest{std::min<std::int64_t>(s.rows, 32), std::min<std::int64_t>(s.input, 4'096), 0};
      while (nearest.rows * nearest.input > 16'384)
        nearest.input /= 2;
      CHECK(got >= fitted.value(amount, kind, nearest, none));
    }
  }
  for (const shape& s : {shape{1, 4'096, 0}, {32, 512, 0}, {4, 4'096, 0}, {3, 3'000, 0}}) {
    CHECK(!refusing.extrapolates(kind, s, none));
    CHECK(refusing.forward(kind, s, none) == fitted.forward(kind, s, none));
  }
}

TEST_CASE("table: memory that nobody knows is refused with a text, inside and outside") {
  constexpr auto kind = layer_kind::decoder;
  profile p = profile_of(kind, grid(powers_of_rows, powers_of_lengths, 16'384), smooth_of(kind));
  for (profile_point& point : p.points)
    point.backward_peak = bytes{0};
  fitted_costs costs = fit_of(kind).costs();
  costs.of(kind, none).amounts[static_cast<std::size_t>(cost_amount::backward_peak)] = {};
  const table_cost cost{p, fitted_cost{costs}, {.outside = outside_policy::fitted}};
  for (const shape& s : {shape{2, 128, 0}, {32, 4'096, 0}, {1, 10'000, 0}}) {
    CHECK(cost.backward_peak(kind, s, none) == bytes::max());
    CHECK(cost.refusal(kind, s, none).find("backward_peak_bytes of decoder") != std::string::npos);
  }
}

TEST_CASE("table: an amount that the fit does not know is not made up") {
  constexpr auto kind = layer_kind::decoder;
  profile p = profile_of(kind, grid(powers_of_rows, powers_of_lengths, 16'384), smooth_of(kind));
  // One shape measured it: too few for a fit.
  for (std::size_t k = 1; k < p.points.size(); ++k) {
    p.points[k].stored = bytes{0};
    p.points[k].weight_stored = bytes{0};
    p.points[k].weight = nanoseconds{0};
  }
  fitted_costs costs = fit_of(kind, false).costs();
  costs.of(kind, none).amounts[static_cast<std::size_t>(cost_amount::stored)] = {};
  const table_cost cost{p, fitted_cost{costs}};
  for (const shape& s : {p.points[0].padded, shape{2, 128, 0}, shape{4, 4'096, 0}}) {
    CHECK(cost.stored(kind, s, none) == bytes::max());
    CHECK(cost.refusal(kind, s, none).find("stored_bytes") != std::string::npos);
    const nanoseconds whole = cost.backward(kind, s, none);
    CHECK(cost.backward_weight(kind, s, none) == whole / 2);
    CHECK(cost.backward_input(kind, s, none) == whole - whole / 2);
  }
  // A fit of another recomputation knows nothing of this one.
  fitted_costs other = fit_of(kind).costs();
  other.of(kind, recompute_mode::full) = other.of(kind, none);
  other.of(kind, none) = {};
  const table_cost lost{p, fitted_cost{other}};
  CHECK(lost.forward(kind, p.points[3].padded, none) == nanoseconds::max());
  CHECK(lost.refusal(kind, p.points[3].padded, none).find("no decoder with recompute none") != std::string::npos);
}

TEST_CASE("table: shapes below the least are charged as it") {
  constexpr auto kind = layer_kind::decoder;
  const profile p = profile_of(kind, grid({2, 4, 8}, {128, 256}, 10'000), wobble_of(kind));
  const table_cost cost{p, fit_of(kind)};
  CHECK(every_cost(cost, kind, {1, 128, 0}) == every_cost(cost, kind, {2, 128, 0}));
  CHECK(every_cost(cost, kind, {1, 1, 0}) == every_cost(cost, kind, {2, 128, 0}));
  CHECK(every_cost(cost, kind, {4, 7, 0}) == every_cost(cost, kind, {4, 128, 0}));
  CHECK(every_cost(cost, kind, {1, 200, 0}) == every_cost(cost, kind, {2, 200, 0}));
  CHECK(!cost.extrapolates(kind, {1, 1, 0}, none));
  CHECK(cost.refusal(kind, {1, 1, 0}, none).empty());
}

TEST_CASE("table: the head reads targets where there are some") {
  constexpr auto kind = layer_kind::head;
  const auto taken = [](cost_amount amount, const shape& s) { return 1.1 * smooth(kind, amount, s); };
  profile p = profile_of(kind, {{1, 256, 64}, {2, 256, 64}, {1, 256, 128}, {2, 256, 128}}, taken);
  const table_cost cost{p, fit_of(kind)};
  for (const profile_point& point : p.points) {
    CHECK(cost.forward(kind, point.padded, none) == point.forward);
    CHECK(cost.forward(kind, {point.padded.rows, point.padded.target, 0}, none) == point.forward);
  }
  CHECK(!all_refused(cost, kind, {2, 100'000, 128}));
  CHECK(all_refused(cost, kind, {2, 64, 129}));
  CHECK(all_refused(cost, kind, {2, 256, 0}));
}

TEST_CASE("table: profiles that are not sound, or not of the fit's device, are refused") {
  constexpr auto kind = layer_kind::decoder;
  const profile p = profile_of(kind, grid(powers_of_rows, powers_of_lengths, 16'384), smooth_of(kind));
  const auto complaint = [](const profile& q, const fitted_cost& fit) -> std::string {
    try {
      const table_cost cost{q, fit};
    } catch (const error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(complaint(p, fit_of(kind)).empty());
  profile other = p;
  other.device = "another";
  CHECK(complaint(other, fit_of(kind)) == "the profile is of another with tensor_parallel 1, the fit of gpu with 1");
  other = p;
  other.tensor_parallel = 2;
  CHECK(complaint(other, fit_of(kind)).find("tensor_parallel 2, the fit of gpu with 1") != std::string::npos);
  other = p;
  other.points[5].forward = nanoseconds{-3};
  CHECK(complaint(other, fit_of(kind)).find("points[5]") != std::string::npos);
}

TEST_CASE("table: kinds without padded points are the fit's") {
  fitted_costs costs = fit_of(layer_kind::decoder).costs();
  costs.of(layer_kind::encoder, none) = costs.of(layer_kind::decoder, none);
  costs.of(layer_kind::encoder, none).seen = {{64, 1'000}, {64, 500}, {0, 0}};
  profile p = profile_of(layer_kind::decoder, grid({1, 2}, {64, 128}, 10'000), wobble_of(layer_kind::decoder));
  for (const std::int64_t length : {100, 200}) {
    profile_point point = point_of(layer_kind::encoder, {1, length, 0}, smooth_of(layer_kind::encoder));
    point.varlen = true;
    point.packed = with_sample({}, length);
    point.padded = {};
    p.points.push_back(point);
  }
  const table_cost cost{p, fitted_cost{costs}};
  CHECK(cost.holes().empty());
  for (const shape& s : {shape{1, 100, 0}, {3, 77, 0}, {40, 4'096, 0}}) {
    const fitted_cost& fit = cost.fit();
    CHECK(cost.forward(layer_kind::encoder, s, none) == fit.forward(layer_kind::encoder, s, none));
    CHECK(cost.backward_input(layer_kind::encoder, s, none) == fit.backward_input(layer_kind::encoder, s, none));
    CHECK(cost.backward_weight(layer_kind::encoder, s, none) == fit.backward_weight(layer_kind::encoder, s, none));
    CHECK(cost.weight_stored(layer_kind::encoder, s, none) == fit.weight_stored(layer_kind::encoder, s, none));
    CHECK(cost.extrapolates(layer_kind::encoder, s, none) == (s.rows == 40));
  }
  CHECK(cost.forward(layer_kind::head, {1, 64, 0}, none) == nanoseconds::max());
  CHECK(cost.refusal(layer_kind::head, {1, 64, 0}, none).find("no head") != std::string::npos);
  CHECK(cost.source() == "table of gpu");
}
