#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

/// One promise that a plan breaks: its place, as the path in the plan's file, and what is wrong, with numbers.
struct violation {
  std::string where;
  std::string what;

  friend bool operator==(const violation&, const violation&) = default;
};

namespace validation {

[[nodiscard]] inline std::string decimal(wide_int value) {
  std::string digits;
  const bool negative = value < 0;
  do {
    const int digit = static_cast<int>(value % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    value /= 10;
  } while (value != 0);
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

/// A piece of a message: text, number, quantity or id.
template <class Part>
[[nodiscard]] std::string piece(const Part& part) {
  if constexpr (std::is_convertible_v<Part, std::string_view>)
    return std::string{std::string_view{part}};
  else if constexpr (requires { part.value(); })
    return decimal(part.value());
  else
    return decimal(static_cast<wide_int>(part));
}

template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
  std::string all;
  ((all += piece(parts)), ...);
  return all;
}

/// Violations in the order of discovery; those beyond the first `limit` are dropped.
class findings {
 public:
  static constexpr std::size_t limit = 20;

  /// Notes that the promise made at `where` is broken. The text is put together only if it is kept.
  template <class... Parts>
  void add(std::string where, const Parts&... parts) {
    ++count_;
    if (list_.size() < limit) list_.push_back({std::move(where), text(parts...)});
  }

  /// How many were noted, the dropped ones included.
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] bool full() const { return list_.size() == limit; }
  [[nodiscard]] std::vector<violation> take() && { return std::move(list_); }

 private:
  std::vector<violation> list_;
  std::size_t count_ = 0;
};

}  // namespace validation
}  // namespace dynapipe
