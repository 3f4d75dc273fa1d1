#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/stage.hpp>

using namespace dynapipe;

namespace {

static_assert(layer_range{3, 8}.count() == 5);
static_assert(layer_range{}.count() == 0);
static_assert(shape{1, 2, 3} == shape{1, 2, 3});
static_assert(shape{1, 2, 3} != shape{1, 3, 2});
static_assert(stage_spec{{0, 2}, {}, false, false} != stage_spec{{}, {0, 2}, false, false});
static_assert(stage_cost{.stored = bytes{1}} != stage_cost{.weight_stored = bytes{1}});

}  // namespace
