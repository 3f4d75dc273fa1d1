#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe::detail {

/// Numbers of rows `from` .. `to` whose times lie on a line: offset + slope * rows.
struct time_piece {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t offset = 0;
  std::int64_t slope = 0;

  [[nodiscard]] std::int64_t at(std::int64_t rows) const { return offset + slope * rows; }
};

/// Finds the lines that a convex function of 1, 2, .. `last` consists of, by asking for few of its values.
///
/// The steps of a convex function do not fall, so a range whose first and last step are equal is linear: that is a
/// proof, and the pieces are exact. A range with unequal steps is cut where the lines of its ends meet, which for two
/// lines is the right place at once. About 3 values a piece; `append` continues a list of pieces.
template <class Value>
class piece_finder {
 public:
  piece_finder(Value& value, std::vector<time_piece>& pieces) : value_{value}, pieces_{pieces}, first_{pieces.size()} {}

  void append(std::int64_t last, std::int64_t at_one, std::int64_t at_last) {
    if (last == 1) {
      pieces_.push_back({1, 1, at_one, 0});
      return;
    }
    const std::int64_t first_step = (last == 2 ? at_last : value_(2)) - at_one;
    if (at_last - at_one == first_step * (last - 1)) {
      pieces_.push_back({1, last, at_one - first_step, first_step});
      return;
    }
    const std::int64_t last_step = at_last - value_(last - 1);
    split({1, at_one, first_step}, {last - 1, at_last - last_step, last_step});
  }

 private:
  /// The step from `at` to `at` + 1.
  struct step {
    std::int64_t at;
    std::int64_t value;
    std::int64_t height;
  };

  void split(const step& a, const step& b) {
    if (a.height == b.height) {
      take(a, b.at);
    } else if (a.at + 1 == b.at) {
      take(a, a.at);
      take(b, b.at);
    } else {
      const std::int64_t meet = a.at + (b.height * (b.at - a.at) - (b.value - a.value)) / (b.height - a.height);
      const std::int64_t x = std::clamp(meet, a.at + 1, b.at - 1);
      const std::int64_t at_x = value_(x);
      const step middle{x, at_x, value_(x + 1) - at_x};
      split(a, middle);
      split(middle, b);
    }
  }

  /// Steps a.at .. `last` are a's; those taken before are passed over.
  void take(const step& a, std::int64_t last) {
    const bool begins = pieces_.size() == first_;
    const std::int64_t from = begins ? 1 : std::max(a.at + 1, pieces_.back().to + 1);
    if (from > last + 1) return;
    const time_piece next{from, last + 1, a.value - a.height * a.at, a.height};
    if (begins) {
      pieces_.push_back(next);
    } else if (time_piece& before = pieces_.back(); before.slope == next.slope && before.offset == next.offset) {
      before.to = next.to;
    } else if (before.from == before.to && before.at(before.to) == next.at(before.to)) {
      before = {before.from, next.to, next.offset, next.slope};
    } else {
      pieces_.push_back(next);
    }
  }

  Value& value_;
  std::vector<time_piece>& pieces_;
  std::size_t first_;
};

/// The most rows of `alone`'s lengths that fit, up to `most`, and their time; `alone` fits with `at_one`. Starts at
/// `guess`, so that few values are asked for where that is nearly right.
template <class ShapeTime>
std::pair<std::int64_t, std::int64_t> last_fitting(const shape& alone, ShapeTime& time, std::int64_t at_one,
                                                   std::int64_t guess, std::int64_t most) {
  std::int64_t fits = 1;
  std::int64_t value = at_one;
  std::int64_t fails = most + 1;
  const auto try_rows = [&](std::int64_t rows) {
    const std::optional<nanoseconds> t = time(shape{rows, alone.input, alone.target});
    if (t) {
      fits = rows;
      value = t->value();
    } else {
      fails = rows;
    }
    return t.has_value();
  };
  guess = std::clamp<std::int64_t>(guess, 1, most);
  const bool too_many = guess > 1 && !try_rows(guess);
  for (std::int64_t step = 1; too_many && fits + 1 < fails; step *= 2)
    if (try_rows(std::max(fits + 1, fails - step))) break;
  for (std::int64_t step = 1; !too_many && fits < most; step *= 2)
    if (!try_rows(std::min(most, fits + step))) break;
  while (fits + 1 < fails)
    try_rows(fits + (fails - fits) / 2);
  return {fits, value};
}

}  // namespace dynapipe::detail
