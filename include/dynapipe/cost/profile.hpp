#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// What is measured of a layer, in the order of the format's fields.
enum class cost_amount : std::uint8_t { forward, backward, weight, stored, weight_stored, forward_peak, backward_peak };

inline constexpr name_table<cost_amount, 7> cost_amount_names{{{cost_amount::forward, "forward_ns"},
                                                               {cost_amount::backward, "backward_ns"},
                                                               {cost_amount::weight, "weight_ns"},
                                                               {cost_amount::stored, "stored_bytes"},
                                                               {cost_amount::weight_stored, "weight_stored_bytes"},
                                                               {cost_amount::forward_peak, "forward_peak_bytes"},
                                                               {cost_amount::backward_peak, "backward_peak_bytes"}}};

[[nodiscard]] constexpr std::string_view to_string(cost_amount value) { return name_in(cost_amount_names, value); }

/// One measured layer: a kind, a recomputation mode and a shape, with the times of its passes and its memory, as in
/// `cost_model`. A point is padded (`padded`) or varlen (`packed`, where `varlen` is true).
struct profile_point {
  layer_kind kind = layer_kind::decoder;
  recompute_mode recompute = recompute_mode::none;
  bool varlen = false;
  shape padded{};
  varlen_shape packed{};
  nanoseconds forward{0};
  nanoseconds backward{0};
  nanoseconds weight{0};  ///< the weight half of `backward`; 0: the split was not measured
  bytes stored{0};
  bytes weight_stored{0};
  bytes forward_peak{0};
  bytes backward_peak{0};
  bool out_of_memory = false;  ///< it did not run: nothing above is known

  friend bool operator==(const profile_point&, const profile_point&) = default;
};

/// Where a measured link runs.
enum class link_place : std::uint8_t { intra_node, inter_node };

inline constexpr name_table<link_place, 2> link_place_names{
    {{link_place::intra_node, "intra_node"}, {link_place::inter_node, "inter_node"}}};

[[nodiscard]] constexpr std::string_view to_string(link_place value) { return name_in(link_place_names, value); }

/// One measured message between two ranks.
struct profile_link {
  link_place place = link_place::intra_node;
  bytes size{0};
  nanoseconds time{0};

  friend bool operator==(const profile_link&, const profile_link&) = default;
};

/// What one device model costs for one layer width and one tensor-parallel degree, as measured.
struct profile {
  std::string device;
  dtype type = dtype::bf16;
  std::int64_t tensor_parallel = 1;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
  bool gated = false;
  std::array<bytes, 5> parameters{};  ///< bytes of one layer's weights on one rank, by layer kind
  std::vector<profile_point> points{};
  std::vector<profile_link> links{};

  [[nodiscard]] bytes parameters_of(layer_kind kind) const { return parameters[static_cast<std::size_t>(kind)]; }

  friend bool operator==(const profile&, const profile&) = default;
};

}  // namespace dynapipe
