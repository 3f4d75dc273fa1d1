#include <cstdint>

#include <doctest/doctest.h>

#include <dynapipe/cost/counts.hpp>

using namespace dynapipe;

namespace {

static_assert(counts_of(layer_kind::decoder, shape{3, 10, 0}) == token_counts{30, 0, 300, 0});
static_assert(counts_of(layer_kind::decoder, shape{3, 10, 0}, 4) == token_counts{30, 0, 3 * (100 - 36), 0});
static_assert(counts_of(layer_kind::decoder, shape{3, 10, 0}, 10) == token_counts{30, 0, 300, 0});
static_assert(counts_of(layer_kind::encoder, shape{3, 10, 0}) == token_counts{30, 0, 300, 0});
static_assert(counts_of(layer_kind::embedding, shape{3, 10, 5}) == token_counts{30, 0, 0, 0});
static_assert(counts_of(layer_kind::head, shape{3, 10, 0}) == token_counts{30, 0, 0, 0});
static_assert(counts_of(layer_kind::head, shape{3, 10, 5}) == token_counts{15, 0, 0, 0});
static_assert(counts_of(layer_kind::cross_decoder, shape{3, 10, 5}) == token_counts{15, 30, 75, 150});

constexpr varlen_shape two = with_sample(with_sample({}, 10, 5), 20, 7);
static_assert(counts_of(layer_kind::decoder, two) == token_counts{30, 0, 500, 0});
static_assert(counts_of(layer_kind::encoder, two) == token_counts{30, 0, 500, 0});
static_assert(counts_of(layer_kind::embedding, two) == token_counts{30, 0, 0, 0});
static_assert(counts_of(layer_kind::head, two) == token_counts{12, 0, 0, 0});
static_assert(counts_of(layer_kind::head, with_sample({}, 10)) == token_counts{10, 0, 0, 0});
static_assert(counts_of(layer_kind::cross_decoder, two) == token_counts{12, 30, 25 + 49, 50 + 140});

constexpr std::int64_t vast = std::int64_t{1} << 32;
static_assert(counts_of(layer_kind::decoder, shape{vast, vast, 0}) == token_counts{int64_limit, 0, int64_limit, 0});
static_assert(counts_of(layer_kind::cross_decoder, shape{1, vast, vast}) ==
              token_counts{vast, vast, int64_limit, int64_limit});
// The squares pass the range by themselves, and come back into it within a window.
static_assert(counts_of(layer_kind::decoder, shape{1, vast, 0}, 1).self_pairs == 2 * vast - 1);
static_assert(counts_of(layer_kind::decoder, shape{int64_limit, int64_limit, 0}).queries == int64_limit);

template <int Shift = 0>
std::int64_t value(const detail::polynomial& p, const token_counts& n) {
  return detail::quantised<Shift>{p}.at(row_counts{n, 1});
}

}  // namespace

TEST_CASE("a quantised polynomial is exact, rounds up and saturates") {
  const detail::polynomial p{7, 5, 3, 2, 1};
  CHECK(value(p, {}) == 7);
  CHECK(value(p, {1'000, 100, 10, 1}) == 7 + 5'000 + 300 + 20 + 1);
  CHECK(value<4>(p, {1'000, 100, 10, 1}) == 1 + (5'321 + 15) / 16);
  CHECK(value<4>({.queries = 1}, {16}) == 1);
  CHECK(value<4>({.queries = 1}, {17}) == 2);

  // Around 2^62, where the ways to evaluate part.
  constexpr std::int64_t edge = std::int64_t{1} << 62;
  for (const std::int64_t n : {edge - 1, edge, edge + 1}) {
    CHECK(value({.queries = 1}, {n}) == n);
    CHECK(value<3>({.self_pairs = 6}, {.self_pairs = n}) == static_cast<std::int64_t>((wide_int{6} * n + 7) / 8));
    CHECK(value({.queries = n}, {1}) == n);
    CHECK(value({.queries = n, .keys = n}, {2, 2}) == int64_limit);
  }
  CHECK(value<40>({.queries = wide_int{1} << 80}, {1 << 23}) == int64_limit);
  CHECK(value<40>({.queries = wide_int{1} << 80}, {1 << 10}) == std::int64_t{1} << 50);
  // Rows are alike, each rounded by itself.
  CHECK(detail::quantised<4>{p}.at({{1'000, 100, 10, 1}, 3}) == 1 + 3 * ((5'321 + 15) / 16));
  CHECK(detail::quantised<>{p}.at({{edge}, 3}) == int64_limit);
  // A saturated count is beyond measure where it counts.
  CHECK(value<40>({.queries = 1}, {int64_limit}) == int64_limit);
  CHECK(value({.constant = 3, .keys = 1}, {int64_limit, 4}) == 7);
}

TEST_CASE("polynomials add, scale and compare term by term") {
  const detail::polynomial a{1, 2, 3, 4, 5};
  const detail::polynomial b{5, 4, 3, 2, 1};
  const token_counts n{10, 100, 1'000, 10'000};
  CHECK(value(a + b, n) == 6 * (1 + 10 + 100 + 1'000 + 10'000));
  CHECK(value(a * 3, n) == 3 * value(a, n));
  CHECK(value(lesser(a, b), n) == 1 + 20 + 300 + 2'000 + 10'000);
  CHECK(value(a.scaled(1, 2), n) == 1 + 10 + 200 + 2'000 + 30'000);
}

TEST_CASE("only a fused kernel skips what a window hides") {
  model_spec model = presets::mistral_7b();
  CHECK(skipped_window(model) == 4'096);
  model.kernel = attention_kernel::unfused;
  CHECK(skipped_window(model) == 0);
}
