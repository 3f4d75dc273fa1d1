#pragma once

/// Version of the library. `meson.build` holds the one source of truth; a test compares the two.

#define DYNAPIPE_VERSION_MAJOR 0
#define DYNAPIPE_VERSION_MINOR 1
#define DYNAPIPE_VERSION_PATCH 0

namespace dynapipe {

/// Version of the headers as text, `major.minor.patch`.
inline constexpr const char* version = "0.1.0";

}  // namespace dynapipe
