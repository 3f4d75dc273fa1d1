#pragma once

#include <cstddef>
#include <cstdint>

namespace dynapipe {

/// Positions in the lists of a plan, counted from 0. They do not mix: a stage is no device.
enum class sample_id : std::int32_t {};
enum class micro_batch_id : std::int32_t {};
enum class stage_id : std::int32_t {};
enum class device_id : std::int32_t {};
enum class replica_id : std::int32_t {};

/// A buffer of one device; `none` where an instruction has no buffer.
enum class buffer_id : std::int32_t { none = -1 };

/// The position that an id stands for, for array access.
template <class Id>
[[nodiscard]] constexpr std::size_t index(Id id) {
  return static_cast<std::size_t>(static_cast<std::int32_t>(id));
}

/// The id of a position; the inverse of `index`.
template <class Id>
[[nodiscard]] constexpr Id to_id(std::size_t position) {
  return static_cast<Id>(static_cast<std::int32_t>(position));
}

}  // namespace dynapipe
