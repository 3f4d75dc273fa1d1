#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace dynapipe {

/// An integer amount of one unit.
///
/// An operator exists only if its result has a unit that makes sense: amounts of the same unit add and compare, an
/// amount times a plain number is an amount, an amount over an amount is a plain number. `bytes + nanoseconds` and
/// `bytes + 1` do not compile. The code is that of the plain integer.
///
/// Guarantee: never throws; overflow is the caller's (see `core/arithmetic.hpp` for saturating forms).
template <class Unit>
class quantity {
 public:
  constexpr quantity() = default;
  constexpr explicit quantity(std::int64_t value) : value_{value} {}

  [[nodiscard]] constexpr std::int64_t value() const { return value_; }

  /// The largest amount. Cost models return it for "beyond measure": no plan ever holds it.
  [[nodiscard]] static constexpr quantity max() { return quantity{std::numeric_limits<std::int64_t>::max()}; }

  constexpr quantity& operator+=(quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr quantity& operator-=(quantity other) {
    value_ -= other.value_;
    return *this;
  }

  friend constexpr quantity operator+(quantity a, quantity b) { return quantity{a.value_ + b.value_}; }
  friend constexpr quantity operator-(quantity a, quantity b) { return quantity{a.value_ - b.value_}; }
  friend constexpr quantity operator*(quantity a, std::int64_t b) { return quantity{a.value_ * b}; }
  friend constexpr quantity operator*(std::int64_t a, quantity b) { return quantity{a * b.value_}; }
  friend constexpr quantity operator/(quantity a, std::int64_t b) { return quantity{a.value_ / b}; }
  friend constexpr std::int64_t operator/(quantity a, quantity b) { return a.value_ / b.value_; }
  friend constexpr auto operator<=>(quantity, quantity) = default;

 private:
  std::int64_t value_ = 0;
};

using nanoseconds = quantity<struct nanoseconds_unit>;
using bytes = quantity<struct bytes_unit>;
using tokens = quantity<struct tokens_unit>;

/// Bytes from binary multiples: `gib(40)` is 40 * 2^30 bytes.
[[nodiscard]] constexpr bytes mib(std::int64_t n) { return bytes{n << 20}; }
[[nodiscard]] constexpr bytes gib(std::int64_t n) { return bytes{n << 30}; }

}  // namespace dynapipe
