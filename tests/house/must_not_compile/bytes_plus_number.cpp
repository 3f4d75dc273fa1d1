#include <dynapipe/core/units.hpp>

#ifdef BROKEN
constexpr auto sum = dynapipe::bytes{1} + 1;
#else
constexpr auto sum = dynapipe::bytes{1} + dynapipe::bytes{1};
#endif

static_assert(sum > dynapipe::bytes{1});
