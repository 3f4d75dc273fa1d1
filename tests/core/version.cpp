#include <string>

#include <doctest/doctest.h>

#include <dynapipe/core/version.hpp>

TEST_CASE("version: the header says what the build says") {
  CHECK(std::string{dynapipe::version} == PROJECT_VERSION);
  const std::string parts = std::to_string(DYNAPIPE_VERSION_MAJOR) + "." + std::to_string(DYNAPIPE_VERSION_MINOR) +
                            "." + std::to_string(DYNAPIPE_VERSION_PATCH);
  CHECK(parts == PROJECT_VERSION);
}
