#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace dynapipe {

/// The table of an enumeration's names: one list serves both directions.
template <class Enum, std::size_t N>
using name_table = std::array<std::pair<Enum, std::string_view>, N>;

/// The name of `value` in `table`; "?" for a value that the table lacks.
template <class Enum, std::size_t N>
[[nodiscard]] constexpr std::string_view name_in(const name_table<Enum, N>& table, Enum value) {
  for (const auto& [key, name] : table)
    if (key == value) return name;
  return "?";
}

/// The value that is called `name` in `table`, if there is one.
template <class Enum, std::size_t N>
[[nodiscard]] constexpr std::optional<Enum> value_in(const name_table<Enum, N>& table, std::string_view name) {
  for (const auto& [key, text] : table)
    if (text == name) return key;
  return std::nullopt;
}

}  // namespace dynapipe
