#include <cstdint>
#include <random>

#include <doctest/doctest.h>

#include <dynapipe/core/arithmetic.hpp>

using namespace dynapipe;

static_assert(saturating_add(1, 2) == 3);
static_assert(round_up(9, 8) == 16);

TEST_CASE("arithmetic: sums and products are held at the largest value, and not before") {
  CHECK(saturating_add(int64_limit - 5, 5) == int64_limit);
  CHECK(saturating_add(int64_limit - 5, 4) == int64_limit - 1);
  CHECK(saturating_add(int64_limit - 5, 6) == int64_limit);
  CHECK(saturating_add(int64_limit, int64_limit) == int64_limit);
  CHECK(saturating_mul(std::int64_t{1} << 31, std::int64_t{1} << 31) == std::int64_t{1} << 62);
  CHECK(saturating_mul(std::int64_t{1} << 32, std::int64_t{1} << 31) == int64_limit);
  CHECK(saturating_mul(int64_limit, 1) == int64_limit);
  CHECK(saturating_mul(int64_limit, 0) == 0);
}

TEST_CASE("arithmetic: a wide value that fits is kept") {
  CHECK(saturate(wide_int{0}) == 0);
  CHECK(saturate(wide_int{int64_limit}) == int64_limit);
  CHECK(saturate(wide_int{int64_limit} - 1) == int64_limit - 1);
  CHECK(saturate(wide_int{int64_limit} + 1) == int64_limit);
  CHECK(saturate(wide_int{int64_limit} * int64_limit) == int64_limit);
}

TEST_CASE("arithmetic: quotients and multiples round up") {
  CHECK(ceil_div(0, 8) == 0);
  CHECK(ceil_div(1, 8) == 1);
  CHECK(ceil_div(8, 8) == 1);
  CHECK(ceil_div(9, 8) == 2);
  CHECK(ceil_div(int64_limit, int64_limit) == 1);
  CHECK(ceil_div(int64_limit, 2) == (std::int64_t{1} << 62));
  CHECK(round_up(0, 64) == 0);
  CHECK(round_up(1, 64) == 64);
  CHECK(round_up(64, 64) == 64);
  CHECK(round_up(65, 1) == 65);
  CHECK(round_up(int64_limit, 2) == int64_limit);
}

TEST_CASE("arithmetic: random values agree with 128-bit arithmetic") {
  constexpr std::uint64_t seed = 20'240'501;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  // Values of every magnitude: 63 random bits, shifted right by a random count.
  const auto draw = [&] { return static_cast<std::int64_t>((random() >> 1) >> (random() % 63)); };
  for (int round = 0; round < 10'000; ++round) {
    const std::int64_t a = draw();
    const std::int64_t b = draw();
    CAPTURE(a);
    CAPTURE(b);
    const wide_int sum = wide_int{a} + b;
    const wide_int product = wide_int{a} * b;
    CHECK(saturating_add(a, b) == (sum > int64_limit ? int64_limit : static_cast<std::int64_t>(sum)));
    CHECK(saturating_mul(a, b) == (product > int64_limit ? int64_limit : static_cast<std::int64_t>(product)));
    if (b > 0) {
      const wide_int quotient = ceil_div(a, b);
      CHECK(quotient * b >= a);
      CHECK((quotient - 1) * b < a);
    }
  }
}
