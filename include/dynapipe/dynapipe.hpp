#pragma once

#include <dynapipe/batch.hpp>
#include <dynapipe/comm.hpp>
#include <dynapipe/core.hpp>
#include <dynapipe/cost.hpp>
#include <dynapipe/plan.hpp>
#include <dynapipe/schedule.hpp>
