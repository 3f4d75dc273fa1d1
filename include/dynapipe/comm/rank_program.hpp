#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

/// What an operation of a rank does: compute, or one end of a transfer.
enum class rank_action : std::uint8_t { compute, send, recv };

/// One operation of a rank, in the terms that decide whether programs can block each other.
struct rank_operation {
  /// No computation is named in `made_by`.
  static constexpr std::int32_t unknown = -1;

  rank_action action = rank_action::compute;
  bool grouped = false;            ///< in one group with the operation before it
  device_id peer{0};               ///< transfers: the other end's rank
  std::int32_t made_by = unknown;  ///< sends: index in this rank's list of the computation that makes the data
  std::uint64_t id = 0;            ///< transfers: the message, the same at both ends; a computation's name
  bytes size{0};                   ///< transfers: the same at both ends

  [[nodiscard]] static constexpr rank_operation compute(std::uint64_t id) { return {.id = id}; }
  [[nodiscard]] static constexpr rank_operation send(device_id to, std::uint64_t id, bytes size) {
    return {.action = rank_action::send, .peer = to, .id = id, .size = size};
  }
  [[nodiscard]] static constexpr rank_operation recv(device_id from, std::uint64_t id, bytes size) {
    return {.action = rank_action::recv, .peer = from, .id = id, .size = size};
  }
  /// The same operation, in one group with the one before it.
  [[nodiscard]] constexpr rank_operation in_group() const {
    rank_operation joined = *this;
    joined.grouped = true;
    return joined;
  }

  friend constexpr bool operator==(const rank_operation&, const rank_operation&) = default;
};

/// What one rank does, in list order. A *position* of the list is one operation, or a run of operations of which all
/// but the first are `grouped`.
using rank_program = std::vector<rank_operation>;

/// Where an operation stands: its rank, and its index in that rank's list, counted from 0.
struct operation_place {
  device_id rank{0};
  std::size_t op = 0;

  friend constexpr bool operator==(const operation_place&, const operation_place&) = default;
};

}  // namespace dynapipe
