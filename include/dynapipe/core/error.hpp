#pragma once

#include <cassert>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <dynapipe/core/units.hpp>

/// Checks a promise of the caller. Defaults to `assert`; define it before the first include to replace it.
#ifndef DYNAPIPE_ASSERT
#define DYNAPIPE_ASSERT(condition) assert(condition)
#endif

namespace dynapipe {

/// Bad outside data: the text names the file, line, field or sample, and the offending value.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Refuses a value out of its range. @throws error: `where`, the field, the range and the value.
inline void require_within(const std::string& where, const std::string& field, std::int64_t value, std::int64_t least,
                           std::int64_t most) {
  if (value < least || value > most)
    throw error{where + field + " must lie in " + std::to_string(least) + ".." + std::to_string(most) + ", it is " +
                std::to_string(value)};
}

/// No plan exists under the limits. The text names the sample or stage and the knob that would help; the numbers
/// are here as well.
class infeasible : public error {
 public:
  infeasible(const std::string& text, bytes needed, bytes available)
      : error{text}, needed_{needed}, available_{available} {}

  /// The least memory that any plan needs at the named place.
  [[nodiscard]] bytes needed() const { return needed_; }
  /// The memory that is there.
  [[nodiscard]] bytes available() const { return available_; }

 private:
  bytes needed_;
  bytes available_;
};

}  // namespace dynapipe
