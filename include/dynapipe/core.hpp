#pragma once

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/core/version.hpp>
