#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/stage.hpp>

namespace dynapipe {

/// What a stage computes of a micro-batch: `backward` is the whole backward or the input half, `weight` the weight
/// half.
enum class timed_pass : std::uint8_t { forward, backward, weight };

inline constexpr name_table<timed_pass, 3> timed_pass_names{
    {{timed_pass::forward, "forward"}, {timed_pass::backward, "backward"}, {timed_pass::weight, "weight"}}};

[[nodiscard]] constexpr std::string_view to_string(timed_pass value) { return name_in(timed_pass_names, value); }

/// A factor on the predicted times of one stage and pass, in 2^-20, and the evidence for it: the number of observations
/// behind it, older ones counting less, in 2^-10.
struct pass_scale {
  static constexpr std::int64_t one = std::int64_t{1} << 20;
  static constexpr std::int64_t one_observation = std::int64_t{1} << 10;

  std::int64_t scale = one;
  std::int64_t evidence = 0;

  /// `time` scaled and rounded up; the largest time stays that. For scales and times >= 0; O(1), never throws.
  [[nodiscard]] constexpr nanoseconds operator()(nanoseconds time) const {
    if (scale == one || time == nanoseconds::max()) return time;
    return nanoseconds{saturate((static_cast<wide_int>(time.value()) * scale + one - 1) / one)};
  }

  friend constexpr bool operator==(const pass_scale&, const pass_scale&) = default;
};

/// What was learned of a cost model at run time: a factor for each stage and pass. A plain value, integers only: one
/// rank makes it, all receive it, and plans made with it name its epoch.
struct calibration {
  std::int64_t epoch = 0;
  std::vector<std::array<pass_scale, 3>> stages;  ///< by stage and pass

  [[nodiscard]] const pass_scale& of(stage_id stage, timed_pass pass) const {
    return stages[index(stage)][static_cast<std::size_t>(pass)];
  }

  friend bool operator==(const calibration&, const calibration&) = default;
};

/// Nothing learned yet of a pipeline of `stages` stages: epoch 0, all factors 1.
template <class Lazy = void>
[[nodiscard]] calibration uncalibrated(std::size_t stages) {
  calibration result;
  result.stages.resize(stages);
  return result;
}

/// The times of `cost` on `stage` as `known` says. O(1), never throws.
inline void scale_times(const calibration& known, std::size_t stage, stage_cost& cost) {
  const std::array<pass_scale, 3>& scales = known.stages[stage];
  cost.forward = scales[0](cost.forward);
  cost.backward = scales[1](cost.backward);
  cost.weight = scales[2](cost.weight);
}

/// A duration that an executor measured. `predicted` is what the cost model says of that micro-batch WITHOUT
/// calibration, so that observations of plans of different epochs go together; see `unscaled`.
struct observation {
  stage_id stage{0};
  timed_pass pass = timed_pass::forward;
  nanoseconds predicted{0};
  nanoseconds measured{0};

  friend constexpr bool operator==(const observation&, const observation&) = default;
};

/// The uncalibrated time behind `planned`, a time of a plan made with `known`; exact but for a nanosecond of rounding.
[[nodiscard]] inline nanoseconds unscaled(const calibration& known, stage_id stage, timed_pass pass,
                                          nanoseconds planned) {
  const std::int64_t scale = known.of(stage, pass).scale;
  return nanoseconds{saturate(static_cast<wide_int>(planned.value()) * pass_scale::one / scale)};
}

/// Options of `calibrate`.
struct calibrate_options {
  std::int64_t minimum = 4;                 ///< observations of a stage and pass below which its factor stays as it is
  std::int64_t keep_percent = 75;           ///< of the earlier evidence that stays at each call; 0 forgets all of it
  std::int64_t outlier_spreads = 5;         ///< spreads from the median beyond which an observation is left out
  std::int64_t least_spread_permille = 20;  ///< of the median: the spread counts as this at least
  std::int64_t least_scale = pass_scale::one / 16;
  std::int64_t most_scale = pass_scale::one * 16;
};

/// Checks a calibration. @throws error naming the stage and pass of a factor or evidence out of range.
template <class Lazy = void>
void require_sound(const calibration& known) {
  require_within("calibration: ", "epoch", known.epoch, 0, int64_limit - 1);
  for (std::size_t s = 0; s < known.stages.size(); ++s)
    for (const auto& [pass, name] : timed_pass_names) {
      const pass_scale& scale = known.stages[s][static_cast<std::size_t>(pass)];
      const std::string where = "calibration: stage " + std::to_string(s) + ", " + std::string{name} + ": ";
      require_within(where, "scale", scale.scale, 1, std::int64_t{1} << 40);
      require_within(where, "evidence", scale.evidence, 0, std::int64_t{1} << 50);
    }
}

namespace detail {

/// The middle of values, of two the lower. O(n).
template <class Lazy, class Values>
[[nodiscard]] std::int64_t lower_median(Values values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// `old` after observations of its stage and pass, at least one.
template <class Lazy = void>
[[nodiscard]] pass_scale learned(const pass_scale& old, std::span<const observation> seen,
                                 const calibrate_options& options) {
  const auto ratio = [](const observation& o) {
    return saturate(static_cast<wide_int>(o.measured.value()) * pass_scale::one / o.predicted.value());
  };
  std::vector<std::int64_t> values;
  for (const observation& o : seen)
    values.push_back(ratio(o));
  const std::int64_t median = lower_median<Lazy>(values);
  const auto distance = [&](std::int64_t value) { return value > median ? value - median : median - value; };
  for (std::int64_t& value : values)
    value = distance(value);
  const std::int64_t floor = saturate(static_cast<wide_int>(median) * options.least_spread_permille / 1000);
  const std::int64_t most = saturating_mul(std::max(lower_median<Lazy>(values), floor), options.outlier_spreads);

  wide_int measured = 0;
  wide_int predicted = 0;
  std::int64_t count = 0;
  for (const observation& o : seen) {
    if (distance(ratio(o)) > most) continue;
    measured += o.measured.value();
    predicted += o.predicted.value();
    ++count;
  }
  const auto clamped = [&](wide_int scale) {
    return static_cast<std::int64_t>(std::clamp<wide_int>(scale, options.least_scale, options.most_scale));
  };
  const std::int64_t fresh = clamped((measured * pass_scale::one + predicted / 2) / predicted);
  const wide_int kept = static_cast<wide_int>(old.evidence) * options.keep_percent / 100;
  const wide_int added = static_cast<wide_int>(count) * pass_scale::one_observation;
  const wide_int evidence = kept + added;
  return {.scale = clamped((kept * old.scale + added * fresh + evidence / 2) / evidence),
          .evidence = static_cast<std::int64_t>(std::min<wide_int>(evidence, wide_int{1} << 50))};
}

}  // namespace detail

/// Corrects `known` by durations that an executor measured.
///
/// Problem: predicted times of a stage and pass are off by a factor that changes slowly; single durations are noisy,
/// and some are far off (a first launch, another job on the machine).
///
/// Method, for each stage and pass on its own: of the ratios measured / predicted take the median and the spread (the
/// median distance from it, at least a share of it); leave out what lies more than `outlier_spreads` spreads away; the
/// fresh factor is the sum of the rest's measured times over the sum of their predicted ones. It is averaged with the
/// factor known so far, weighted by the number of observations behind each, of which the earlier ones lose a quarter at
/// each call (`keep_percent`): exponential forgetting. Fewer than `minimum` observations change nothing.
///
/// Guarantee: integers only, so equal on every machine and under any compiler flag; the order of observations does not
/// matter; factors lie within `least_scale` and `most_scale`, save those that nothing was observed of; fewer than half
/// of a call's observations of a stage and pass cannot move its median out of the range of the others. The epoch rises
/// by one. Complexity: O(observations).
///
/// @throws error naming the observation, where its stage does not exist or a time is negative; where an option is out
/// of range; where `known` is unsound. Observations with a predicted time of 0 say nothing and are left out.
template <class Lazy = void>
[[nodiscard]] calibration calibrate(const calibration& known, std::span<const observation> observations,
                                    const calibrate_options& options = {}) {
  require_sound(known);
  require_within("calibrate: ", "minimum", options.minimum, 1, int64_limit);
  require_within("calibrate: ", "keep_percent", options.keep_percent, 0, 100);
  require_within("calibrate: ", "outlier_spreads", options.outlier_spreads, 1, 1'000'000);
  require_within("calibrate: ", "least_spread_permille", options.least_spread_permille, 0, 1000);
  require_within("calibrate: ", "least_scale", options.least_scale, 1, pass_scale::one);
  require_within("calibrate: ", "most_scale", options.most_scale, pass_scale::one, std::int64_t{1} << 40);

  std::vector<std::vector<observation>> groups(known.stages.size() * 3);
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const observation& o = observations[i];
    const std::string where = "observation " + std::to_string(i) + ": ";
    require_within(where, "stage", static_cast<std::int64_t>(o.stage), 0,
                   static_cast<std::int64_t>(known.stages.size()) - 1);
    require_within(where, "pass", static_cast<std::int64_t>(o.pass), 0, 2);
    require_within(where, "predicted_ns", o.predicted.value(), 0, int64_limit);
    require_within(where, "measured_ns", o.measured.value(), 0, int64_limit);
    if (o.predicted > nanoseconds{0}) groups[index(o.stage) * 3 + static_cast<std::size_t>(o.pass)].push_back(o);
  }
  calibration result = known;
  result.epoch += 1;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    pass_scale& scale = result.stages[g / 3][g % 3];
    if (static_cast<std::int64_t>(groups[g].size()) >= options.minimum)
      scale = detail::learned(scale, groups[g], options);
  }
  return result;
}

}  // namespace dynapipe
