#pragma once

#include <dynapipe/comm/deadlock.hpp>
#include <dynapipe/comm/rank_program.hpp>
