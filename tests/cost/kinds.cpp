#include <optional>
#include <string_view>

#include <doctest/doctest.h>

#include <dynapipe/cost/kinds.hpp>

using namespace dynapipe;

namespace {

/// Whether names and values are one to one and every value is the one at its place.
template <class Enum, std::size_t N>
constexpr bool round_trips(const name_table<Enum, N>& table) {
  for (std::size_t i = 0; i < N; ++i) {
    const auto& [value, name] = table[i];
    if (static_cast<std::size_t>(value) != i) return false;
    if (name.empty() || to_string(value) != name || value_in(table, name) != value) return false;
    for (std::size_t k = 0; k < i; ++k)
      if (table[k].second == name) return false;
  }
  return !value_in(table, "").has_value() && !value_in(table, "?").has_value();
}

static_assert(round_trips(layer_kind_names));
static_assert(round_trips(recompute_names));
static_assert(round_trips(dtype_names));
static_assert(round_trips(attention_mask_names));
static_assert(round_trips(attention_kernel_names));

}  // namespace

TEST_CASE("every word of cost/ is the one that files use") {
  CHECK(to_string(layer_kind::cross_decoder) == "cross_decoder");
  CHECK(to_string(recompute_mode::selective) == "selective");
  CHECK(to_string(dtype::bf16) == "bf16");
  CHECK(to_string(attention_mask::bidirectional) == "bidirectional");
  CHECK(to_string(attention_kernel::unfused) == "unfused");
  CHECK(value_in(recompute_names, "Full") == std::nullopt);
  CHECK(to_string(static_cast<recompute_mode>(9)) == "?");
}

TEST_CASE("bytes of one number") {
  CHECK(size_of(dtype::bf16) == 2);
  CHECK(size_of(dtype::fp16) == 2);
  CHECK(size_of(dtype::fp32) == 4);
  CHECK(size_of(dtype::fp64) == 8);
}
