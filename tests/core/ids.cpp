#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>

#include <dynapipe/core/ids.hpp>

using namespace dynapipe;

static_assert(!std::convertible_to<stage_id, device_id>);
static_assert(!std::convertible_to<int, stage_id>);
static_assert(!std::equality_comparable_with<sample_id, micro_batch_id>);
static_assert(index(device_id{7}) == 7);

TEST_CASE("ids: a position and its id belong together") {
  const auto last = static_cast<std::size_t>(std::numeric_limits<int>::max());
  for (const std::size_t position : {std::size_t{0}, std::size_t{1}, std::size_t{4711}, last})
    CHECK(index(to_id<sample_id>(position)) == position);
}

TEST_CASE("ids: no buffer is no position") {
  CHECK(buffer_id::none != to_id<buffer_id>(0));
  CHECK(static_cast<int>(buffer_id::none) == -1);
}
