#include <dynapipe/core/ids.hpp>

#ifdef BROKEN
constexpr dynapipe::device_id device = dynapipe::stage_id{1};
#else
constexpr dynapipe::device_id device = dynapipe::device_id{1};
#endif

static_assert(dynapipe::index(device) == 1);
