#pragma once

#include <cstdint>
#include <limits>

namespace dynapipe {

/// 128-bit integers, for products of squared lengths and fixed-point coefficients.
__extension__ typedef __int128 wide_int;

inline constexpr std::int64_t int64_limit = std::numeric_limits<std::int64_t>::max();

/// `value` as 64 bits; the largest int64 where it does not fit. Only for values >= 0.
[[nodiscard]] constexpr std::int64_t saturate(wide_int value) {
  return value > int64_limit ? int64_limit : static_cast<std::int64_t>(value);
}

/// a + b for a, b >= 0, held at the largest int64.
[[nodiscard]] constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  return a > int64_limit - b ? int64_limit : a + b;
}

/// a * b for a, b >= 0, held at the largest int64.
[[nodiscard]] constexpr std::int64_t saturating_mul(std::int64_t a, std::int64_t b) {
  return saturate(static_cast<wide_int>(a) * b);
}

/// The least n with n * b >= a, for a >= 0 and b > 0.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// The nearest integer, for 0 <= value < 2^62; halves go up. (`<cmath>` costs more to include than all of this folder.)
[[nodiscard]] constexpr std::int64_t nearest(double value) { return static_cast<std::int64_t>(value + 0.5); }

/// The least multiple of `step` that is not below `value`, for value >= 0 and step > 0, held at the largest int64.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return saturating_mul(ceil_div(value, step), step);
}

}  // namespace dynapipe
