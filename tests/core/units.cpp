#include <concepts>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

#include <dynapipe/core/units.hpp>

using namespace dynapipe;

namespace {

template <class A, class B>
concept adds = requires(A a, B b) { a + b; };
template <class A, class B>
concept multiplies = requires(A a, B b) { a* b; };
template <class A, class B>
concept compares = requires(A a, B b) { a < b; };

static_assert(adds<bytes, bytes>);
static_assert(!adds<bytes, nanoseconds>);
static_assert(!adds<bytes, int>);
static_assert(!adds<int, bytes>);
static_assert(multiplies<bytes, int>);
static_assert(!multiplies<bytes, bytes>);
static_assert(compares<tokens, tokens>);
static_assert(!compares<tokens, bytes>);
static_assert(!std::convertible_to<int, bytes>);
static_assert(!std::convertible_to<bytes, std::int64_t>);
static_assert(sizeof(nanoseconds) == sizeof(std::int64_t));

}  // namespace

TEST_CASE("units: amounts of one unit add, subtract and compare") {
  bytes sum{5};
  sum += bytes{7};
  CHECK(sum.value() == 12);
  sum -= bytes{20};
  CHECK(sum.value() == -8);
  CHECK((bytes{2} + bytes{3}).value() == 5);
  CHECK((bytes{2} - bytes{3}).value() == -1);
  CHECK(bytes{2} < bytes{3});
  CHECK(bytes{3} >= bytes{3});
  CHECK(bytes{2} != bytes{3});
  CHECK(bytes{}.value() == 0);
}

TEST_CASE("units: an amount scales by plain numbers, and over an amount it is a plain number") {
  CHECK((nanoseconds{6} * 7).value() == 42);
  CHECK((7 * nanoseconds{6}).value() == 42);
  CHECK((nanoseconds{43} / 6).value() == 7);
  CHECK(nanoseconds{43} / nanoseconds{6} == 7);
}

TEST_CASE("units: the largest amount is that of the integer") {
  CHECK(tokens::max().value() == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("units: binary multiples") {
  CHECK(mib(3).value() == 3'145'728);
  CHECK(gib(40) == mib(40'960));
}
