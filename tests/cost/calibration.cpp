#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/calibration.hpp>

using namespace dynapipe;

namespace {

constexpr std::int64_t one = pass_scale::one;

observation seen(int stage, timed_pass pass, std::int64_t predicted, std::int64_t measured) {
  return {stage_id{stage}, pass, nanoseconds{predicted}, nanoseconds{measured}};
}

/// A machine whose stages are slower than predicted, each pass by its own factor (in thousandths), with noise of up to
/// `noise` thousandths and, one time in `outlier_every`, up to a hundred times the time.
struct machine {
  std::mt19937_64 random;
  std::int64_t noise = 50;
  std::uint64_t outlier_every = 0;

  std::int64_t from(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  }
  void measure(std::vector<observation>& all, int stage, timed_pass pass, std::int64_t factor, int count) {
    for (int k = 0; k < count; ++k) {
      const std::int64_t predicted = from(200'000, 20'000'000);
      std::int64_t measured = predicted * factor / 1000 * from(1000 - noise, 1000 + noise) / 1000;
      if (outlier_every > 0 && random() % outlier_every == 0) measured *= from(10, 100);
      all.push_back(seen(stage, pass, predicted, measured));
    }
  }
};

/// |scale / 2^20 - factor / 1000| in thousandths of the factor.
std::int64_t off(const pass_scale& scale, std::int64_t factor) {
  const std::int64_t thousandths = scale.scale * 1000 / one;
  return std::max(thousandths - factor, factor - thousandths) * 1000 / factor;
}

template <class Call>
std::string complaint(Call call) {
  try {
    static_cast<void>(call());
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a factor scales times, rounded up, and leaves the largest as it is") {
  CHECK(pass_scale{}(nanoseconds{12'345}) == nanoseconds{12'345});
  CHECK(pass_scale{.scale = one * 3 / 2}(nanoseconds{1'000}) == nanoseconds{1'500});
  CHECK(pass_scale{.scale = one + 1}(nanoseconds{1'000}) == nanoseconds{1'001});
  CHECK(pass_scale{.scale = one / 2}(nanoseconds{1}) == nanoseconds{1});
  CHECK(pass_scale{.scale = 5 * one}(nanoseconds{0}) == nanoseconds{0});
  CHECK(pass_scale{.scale = one / 2}(nanoseconds::max()) == nanoseconds::max());
  CHECK(pass_scale{.scale = 5 * one}(nanoseconds::max() - nanoseconds{1}) == nanoseconds::max());

  calibration known = uncalibrated(2);
  known.stages[1] = {pass_scale{.scale = 2 * one}, pass_scale{.scale = 3 * one}, pass_scale{.scale = one / 2}};
  stage_cost cost{.forward = nanoseconds{10}, .backward = nanoseconds{20}, .weight = nanoseconds{30}};
  const stage_cost before = cost;
  scale_times(known, 0, cost);
  CHECK(cost == before);
  scale_times(known, 1, cost);
  CHECK(cost.forward == nanoseconds{20});
  CHECK(cost.backward == nanoseconds{60});
  CHECK(cost.weight == nanoseconds{15});
}

TEST_CASE("what a plan states comes back to what the model said, to the nanosecond of rounding") {
  std::mt19937_64 random{12};
  for (int round = 0; round < 5'000; ++round) {
    calibration known = uncalibrated(3);
    const auto scale = static_cast<std::int64_t>(one / 16 + static_cast<std::int64_t>(random() % (8 * one)));
    known.stages[2][1].scale = scale;
    const nanoseconds time{static_cast<std::int64_t>(random() % 1'000'000'000)};
    const nanoseconds planned = known.of(stage_id{2}, timed_pass::backward)(time);
    const std::int64_t back = unscaled(known, stage_id{2}, timed_pass::backward, planned).value();
    CHECK(back >= time.value());
    CHECK(back <= time.value() + one / scale + 1);
  }
}

TEST_CASE("calibrate: converges to the true slowdown of each stage and pass, under noise and outliers") {
  constexpr unsigned seed = 2'718;
  MESSAGE("seed ", seed);
  for (const std::uint64_t outlier_every : {0U, 10U, 4U}) {
    machine m{std::mt19937_64{seed}, 100, outlier_every};
    calibration known = uncalibrated(3);
    const std::int64_t truth[3][3] = {{1'000, 1'100, 900}, {1'300, 1'250, 1'700}, {700, 3'000, 1'000}};
    for (int call = 0; call < 10; ++call) {
      std::vector<observation> all;
      for (int stage = 0; stage < 3; ++stage)
        for (int pass = 0; pass < 3; ++pass)
          m.measure(all, stage, static_cast<timed_pass>(pass), truth[stage][pass], 16);
      known = calibrate(known, all);
    }
    CHECK(known.epoch == 10);
    for (std::size_t stage = 0; stage < 3; ++stage)
      for (std::size_t pass = 0; pass < 3; ++pass) {
        CAPTURE(stage);
        CAPTURE(pass);
        CAPTURE(outlier_every);
        CHECK(off(known.stages[stage][pass], truth[stage][pass]) <= 20);
      }
  }
}

TEST_CASE("calibrate: without noise the first call is exact; the ratio is of sums, not of each") {
  std::vector<observation> all;
  for (const std::int64_t t : {1'000, 2'000, 40'000, 5'000})
    all.push_back(seen(0, timed_pass::forward, t, t * 5 / 4));
  const calibration known = calibrate(uncalibrated(1), all);
  CHECK(known.of(stage_id{0}, timed_pass::forward) ==
        pass_scale{.scale = one * 5 / 4, .evidence = 4 * pass_scale::one_observation});
  CHECK(known.of(stage_id{0}, timed_pass::backward) == pass_scale{});
  all = {seen(0, timed_pass::weight, 1'000, 1'010), seen(0, timed_pass::weight, 1'000, 1'010),
         seen(0, timed_pass::weight, 7'000, 7'000), seen(0, timed_pass::weight, 1'000, 1'000)};
  CHECK(calibrate(uncalibrated(1), all).of(stage_id{0}, timed_pass::weight).scale == (10'020 * one + 5'000) / 10'000);
}

TEST_CASE("calibrate: one wild duration in five changes nothing") {
  for (const std::int64_t wild : {0, 1, 1'000'000'000}) {
    std::vector<observation> all;
    for (int k = 0; k < 4; ++k)
      all.push_back(seen(0, timed_pass::forward, 1'000'000, 1'500'000));
    const calibration clean = calibrate(uncalibrated(1), all);
    all.insert(all.begin() + 2, seen(0, timed_pass::forward, 1'000'000, wild));
    CHECK(calibrate(uncalibrated(1), all) == clean);
  }
}

TEST_CASE("calibrate: forgets, faster where less is kept") {
  machine m{std::mt19937_64{99}, 20, 0};
  calibration known = uncalibrated(1);
  const auto learn = [&](std::int64_t factor, int calls, const calibrate_options& options) {
    for (int call = 0; call < calls; ++call) {
      std::vector<observation> all;
      m.measure(all, 0, timed_pass::forward, factor, 10);
      known = calibrate(known, all, options);
    }
  };
  learn(1'000, 20, {});
  CHECK(off(known.stages[0][0], 1'000) <= 10);
  // Evidence levels out: 10 observations a call, of which three quarters stay, are 40.
  CHECK(known.stages[0][0].evidence / pass_scale::one_observation == 39);
  const calibration before = known;
  learn(2'000, 1, {});
  CHECK(off(known.stages[0][0], 1'250) <= 20);
  learn(2'000, 15, {});
  CHECK(off(known.stages[0][0], 2'000) <= 15);
  known = before;
  learn(2'000, 1, {.keep_percent = 0});
  CHECK(off(known.stages[0][0], 2'000) <= 15);
}

TEST_CASE("calibrate: too few observations change nothing but the epoch, and nothing is forgotten by them") {
  std::vector<observation> all;
  for (int k = 0; k < 6; ++k)
    all.push_back(seen(1, timed_pass::backward, 100, 150));
  calibration known = calibrate(uncalibrated(2), all);
  const calibration before = known;
  all.resize(3);
  all.push_back(seen(1, timed_pass::backward, 0, 777));  // says nothing
  known = calibrate(known, all);
  CHECK(known.epoch == before.epoch + 1);
  CHECK(known.stages == before.stages);
  CHECK(calibrate(known, {}).stages == before.stages);
  CHECK(calibrate(known, all, {.minimum = 3}).stages != before.stages);
}

TEST_CASE("calibrate: factors stay within the limits") {
  std::vector<observation> all;
  for (int k = 0; k < 6; ++k) {
    all.push_back(seen(0, timed_pass::forward, 1, int64_limit));
    all.push_back(seen(0, timed_pass::backward, int64_limit, 0));
  }
  const calibration known = calibrate(uncalibrated(1), all);
  CHECK(known.stages[0][0].scale == 16 * one);
  CHECK(known.stages[0][1].scale == one / 16);
  CHECK(calibrate(known, all, {.most_scale = 2 * one}).stages[0][0].scale == 2 * one);
}

TEST_CASE("calibrate: the order of observations does not matter, and equal inputs give equal results") {
  constexpr unsigned seed = 1'618;
  MESSAGE("seed ", seed);
  machine m{std::mt19937_64{seed}, 300, 5};
  for (int round = 0; round < 200; ++round) {
    calibration known = uncalibrated(2);
    known.stages[1][0] = {.scale = one * 3 / 2, .evidence = m.from(0, 100'000)};
    std::vector<observation> all;
    for (int stage = 0; stage < 2; ++stage)
      for (int pass = 0; pass < 2; ++pass)
        m.measure(all, stage, static_cast<timed_pass>(pass), m.from(500, 2'000), static_cast<int>(m.from(1, 20)));
    const calibration first = calibrate(known, all);
    CHECK(calibrate(known, all) == first);
    for (int shuffle = 0; shuffle < 5; ++shuffle) {
      std::shuffle(all.begin(), all.end(), m.random);
      CHECK(calibrate(known, all) == first);
    }
  }
}

TEST_CASE("calibrate: bad observations, options and calibrations are refused by name") {
  const calibration known = uncalibrated(2);
  const auto of = [&](const observation& o) {
    return complaint([&] { return calibrate(known, std::array{seen(0, timed_pass::forward, 1, 1), o}); });
  };
  CHECK(of(seen(1, timed_pass::weight, 1, 1)) == "none");
  CHECK(of(seen(2, timed_pass::forward, 1, 1)) == "observation 1: stage must lie in 0..1, it is 2");
  CHECK(of(seen(-1, timed_pass::forward, 1, 1)) == "observation 1: stage must lie in 0..1, it is -1");
  CHECK(of(seen(0, static_cast<timed_pass>(3), 1, 1)) == "observation 1: pass must lie in 0..2, it is 3");
  CHECK(of(seen(0, timed_pass::forward, -1, 1)).find("observation 1: predicted_ns must lie in 0..") == 0);
  CHECK(of(seen(0, timed_pass::forward, 1, -5)).find("observation 1: measured_ns must lie in 0..") == 0);
  const auto with = [&](const calibrate_options& options) {
    return complaint([&] { return calibrate(known, {}, options); });
  };
  CHECK(with({.minimum = 0}).find("calibrate: minimum must lie in 1..") == 0);
  CHECK(with({.keep_percent = 101}) == "calibrate: keep_percent must lie in 0..100, it is 101");
  CHECK(with({.outlier_spreads = 0}).find("calibrate: outlier_spreads") == 0);
  CHECK(with({.least_spread_permille = -1}).find("calibrate: least_spread_permille") == 0);
  CHECK(with({.least_scale = 0}).find("calibrate: least_scale") == 0);
  CHECK(with({.most_scale = one - 1}).find("calibrate: most_scale") == 0);
  calibration unsound = known;
  unsound.stages[1][2].scale = 0;
  CHECK(complaint([&] { return calibrate(unsound, {}); }) ==
        "calibration: stage 1, weight: scale must lie in 1..1099511627776, it is 0");
  unsound = known;
  unsound.stages[0][0].evidence = -1;
  CHECK(complaint([&] { return calibrate(unsound, {}); }).find("stage 0, forward: evidence must lie in 0..") !=
        std::string::npos);
  unsound = known;
  unsound.epoch = -1;
  CHECK(complaint([&] { return calibrate(unsound, {}); }).find("calibration: epoch must lie in 0..") == 0);
}
