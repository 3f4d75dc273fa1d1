#pragma once

#include <cstdint>
#include <string_view>

#include <dynapipe/core/names.hpp>

namespace dynapipe {

/// What a transfer carries: an activation to the next stage, or its gradient back.
enum class tensor_kind : std::uint8_t { activation, gradient };

/// How a device's transfers queue: all in one queue, one queue for each peer, or one for each peer and direction.
enum class queue_style : std::uint8_t { single, per_peer, per_direction };

inline constexpr name_table<tensor_kind, 2> tensor_kind_names{
    {{tensor_kind::activation, "activation"}, {tensor_kind::gradient, "gradient"}}};
inline constexpr name_table<queue_style, 3> queue_style_names{{{queue_style::single, "single"},
                                                               {queue_style::per_peer, "per_peer"},
                                                               {queue_style::per_direction, "per_direction"}}};

[[nodiscard]] constexpr std::string_view to_string(tensor_kind value) { return name_in(tensor_kind_names, value); }
[[nodiscard]] constexpr std::string_view to_string(queue_style value) { return name_in(queue_style_names, value); }

}  // namespace dynapipe
