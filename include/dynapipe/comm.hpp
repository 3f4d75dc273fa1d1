#pragma once

#include <dynapipe/comm/certify.hpp>
#include <dynapipe/comm/deadlock.hpp>
#include <dynapipe/comm/order.hpp>
#include <dynapipe/comm/rank_order.hpp>
#include <dynapipe/comm/rank_program.hpp>
