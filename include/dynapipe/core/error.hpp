#pragma once

#include <cassert>
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
