#include <optional>

#include <doctest/doctest.h>

#include <dynapipe/core/names.hpp>

using namespace dynapipe;

namespace {

enum class fruit { apple, pear, plum };

constexpr name_table<fruit, 2> fruit_names{{{fruit::apple, "apple"}, {fruit::pear, "pear"}}};

static_assert(name_in(fruit_names, fruit::pear) == "pear");
static_assert(value_in(fruit_names, "apple") == fruit::apple);

}  // namespace

TEST_CASE("names: a value that the table lacks is called ?") { CHECK(name_in(fruit_names, fruit::plum) == "?"); }

TEST_CASE("names: only whole names are found") {
  CHECK(value_in(fruit_names, "pear") == fruit::pear);
  CHECK(value_in(fruit_names, "plum") == std::nullopt);
  CHECK(value_in(fruit_names, "pea") == std::nullopt);
  CHECK(value_in(fruit_names, "pears") == std::nullopt);
  CHECK(value_in(fruit_names, "Pear") == std::nullopt);
  CHECK(value_in(fruit_names, "") == std::nullopt);
}
