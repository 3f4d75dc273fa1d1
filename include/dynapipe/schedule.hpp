#pragma once

#include <dynapipe/schedule/adaptive.hpp>
#include <dynapipe/schedule/bound.hpp>
#include <dynapipe/schedule/dispatch.hpp>
#include <dynapipe/schedule/kinds.hpp>
#include <dynapipe/schedule/one_f_one_b.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>
#include <dynapipe/schedule/simulate.hpp>
