#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/kinds.hpp>

namespace dynapipe {

/// Layers [from, to) of a model's encoder or decoder.
struct layer_range {
  std::int64_t from = 0;
  std::int64_t to = 0;

  [[nodiscard]] constexpr std::int64_t count() const { return to - from; }
  friend constexpr bool operator==(const layer_range&, const layer_range&) = default;
};

/// What one pipeline stage holds.
struct stage_spec {
  layer_range encoder;
  layer_range decoder;
  bool embedding = false;
  bool head = false;

  friend constexpr bool operator==(const stage_spec&, const stage_spec&) = default;
};

/// Cost of one micro-batch on one stage.
///
/// `forward` ends with `stored` bytes kept for the backward pass and needs `forward_peak` (which includes `stored`) on
/// top of its buffers while it runs; `backward` needs `backward_peak` on top of what is stored and returns `stored`.
/// With a split backward, `backward` is the input half, `weight` the time of the weight half, and `weight_stored` the
/// part of `stored` that only the weight half returns.
struct stage_cost {
  nanoseconds forward{0};
  nanoseconds backward{0};
  nanoseconds weight{0};
  bytes stored{0};
  bytes weight_stored{0};
  bytes forward_peak{0};
  bytes backward_peak{0};
  recompute_mode recompute = recompute_mode::none;

  friend constexpr bool operator==(const stage_cost&, const stage_cost&) = default;
};

/// What one micro-batch moves between two stages in a row: tensors of (rows, length, hidden) elements, as one buffer
/// and one message each way. The times are 0 where both stages share a device.
struct boundary_cost {
  std::vector<std::array<std::int64_t, 3>> tensors;
  bytes forward_bytes{0};
  nanoseconds forward{0};
  bytes backward_bytes{0};
  nanoseconds backward{0};

  friend bool operator==(const boundary_cost&, const boundary_cost&) = default;
};

}  // namespace dynapipe
